//! The page of `report` in a real browser: it loads without console messages, in light and dark, with its charts, and no
//! label is cut off or overlaps another. Needs Chromium; without it the tests are skipped, and fail if CI is set.

#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::fs;
use std::path::Path;
use std::process::Command;

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Charts that every workload with writes must have.
const CHARTS: [&str; 9] = [
    "Throughput, operations per second",
    "Latency, logarithmic scale",
    "Operations in each second",
    "CPU in each second, cores",
    "Written to the device in each second, MiB",
    "Write amplification: device bytes per user byte",
    "Disk space, MiB",
    "Peak resident memory, MiB",
    "Milliseconds to open",
];

/// Checks the loaded page as a reader sees it, and writes the answers to attributes that `--dump-dom` shows.
const PROBE: &str = "<script>
    const say = (name, value) => document.body.setAttribute('data-' + name, value);
    say('background', getComputedStyle(document.body).backgroundColor);
    const wrong = [];
    for (const svg of document.querySelectorAll('svg')) {
        const title = svg.getAttribute('aria-label');
        const width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;
        const texts = [...svg.querySelectorAll('text')].map(text => [text.textContent, text.getBBox()]);
        texts.forEach(([one, a], at) => {
            if (a.x < -0.5 || a.y < -3 || a.x + a.width > width + 0.5 || a.y + a.height > height + 3)
                wrong.push(`${title}: ${one} is cut off`);
            for (const [other, b] of texts.slice(at + 1))
                if (a.x < b.x + b.width && b.x < a.x + a.width && a.y + 2 < b.y + b.height && b.y + 2 < a.y + a.height)
                    wrong.push(`${title}: ${one} overlaps ${other}`);
        });
    }
    if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page is wider than the window');
    say('wrong', wrong.join('; '));
</script>";

/// A page as the browser loaded it.
struct Loaded {
    dom: String,
    /// Its console messages.
    console: Vec<String>,
}

impl Loaded {
    /// An answer of the probe.
    fn answer(&self, name: &str) -> &str {
        let (_, rest) = self.dom.split_once(&format!("data-{name}=\"")).unwrap();
        rest.split_once('"').unwrap().0
    }
}

/// The browser's name; none if there is none, which fails if CI is set.
fn browser() -> Option<&'static str> {
    let found = BROWSERS.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        let sentence = "no Chromium on this machine: the page was not loaded in a browser";
        assert!(std::env::var_os("CI").is_none(), "{sentence}; CI must have one (apt-get install chromium)");
        eprintln!("Skipped: {sentence}.");
    }
    found
}

fn load(browser: &str, page: &Path, dark: bool, width: u32) -> Loaded {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"])
        .args(["--enable-logging=stderr", "--v=0", "--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--window-size={width},900"))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{browser}: {}\n{error}", output.status);
    let console = error.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    Loaded { dom: String::from_utf8_lossy(&output.stdout).into_owned(), console }
}

fn bench(arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_cleave-bench")).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_page_loads_with_its_charts_in_light_and_dark() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (runs, paper, page) = (path("runs.json"), path("paper.json"), dir.path().join("page.html"));
    // Two complete seconds, so that there are points to draw over time.
    let size = ["--records", "300", "--operations", "520", "--rate", "200"];
    let places = ["--dir", &path("stores"), "--json", &runs];
    bench(&[&["run", "--workload", "fillrandom,ycsb-a"], &size[..], &places].concat());
    bench(&["paper", "kvaccel", "--scale", "0.00001", "--json", &paper]);
    bench(&["report", &runs, &paper, "--out", page.to_str().unwrap()]);

    let html = fs::read_to_string(&page).unwrap();
    let probed = dir.path().join("probed.html");
    fs::write(&probed, html.replace("</body>", &format!("{PROBE}</body>"))).unwrap();
    for (dark, background, width) in [(false, "rgb(246, 246, 243)", 1280), (true, "rgb(19, 22, 25)", 500)] {
        let console = load(browser, &page, dark, width).console;
        assert!(console.is_empty(), "{console:?}");
        let loaded = load(browser, &probed, dark, width);
        assert_eq!(loaded.answer("background"), background);
        assert_eq!(loaded.answer("wrong"), "", "{width} wide");
        for chart in CHARTS {
            let charts = loaded.dom.matches(&format!("aria-label=\"{chart}\"")).count();
            assert!(charts >= 2, "{chart}, once for each workload, and for those of the paper: {charts}");
        }
        assert!(loaded.dom.contains("cleave: peak"), "space at its peak");
        assert!(loaded.dom.contains("idle bandwidth in a stall") && loaded.dom.contains("How to reproduce"));
    }
}

#[test]
fn the_check_detects_console_errors_and_overlapping_labels() {
    let Some(browser) = browser() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("page.html");
    let label = |x, text| format!("<text x=\"{x}\" y=\"20\">{text}</text>");
    let texts = [label(2, "one"), label(6, "two"), label(390, "three")].concat();
    let html = "<!doctype html><title>wrong</title><body><script>console.error('a canary')</script>\
                <svg viewBox=\"0 0 400 40\" width=\"400\" aria-label=\"chart\">";
    fs::write(&page, format!("{html}{texts}</svg>{PROBE}</body>")).unwrap();
    let loaded = load(browser, &page, false, 1280);
    assert!(loaded.console.iter().any(|line| line.contains("a canary")), "{:?}", loaded.console);
    assert_eq!(loaded.answer("wrong"), "chart: one overlaps two; chart: three is cut off");
}
