//! What a database reports while it works: to listeners, on the statistics page, and with cargo features through
//! `metrics` and `tracing`.

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cleavedb::testing::{self, Faults, SimDisk, Tuning};
use cleavedb::{Db, Event, Listener, LiveStats, Options, Stats, live_stats};

#[derive(Default)]
struct RecordingListener {
    events: Mutex<Vec<Event>>,
    /// Read by the listener itself, which may call the database.
    db: Mutex<Option<Db>>,
    panics: bool,
}

impl Listener for RecordingListener {
    fn event(&self, event: &Event) {
        self.events.lock().unwrap().push(event.clone());
        if let Some(db) = &*self.db.lock().unwrap() {
            db.get("000001").unwrap();
            assert!(db.stats().seqno > 0);
        }
        assert!(!self.panics, "a listener of a test that panics");
    }
}

fn open(disk: &SimDisk, listener: &Arc<RecordingListener>) -> Db {
    let options = Options::new().listener(listener.clone());
    testing::open(Arc::new(disk.clone()), Path::new("/db"), options, Tuning::tiny()).unwrap()
}

fn fill(db: &Db, count: usize) {
    for number in 0..count {
        db.put(format!("{number:06}"), vec![number as u8; 300]).unwrap();
    }
}

#[test]
fn flush_and_compaction_events_report_the_bytes_moved() {
    let listener = Arc::new(RecordingListener::default());
    let db = open(&SimDisk::new(), &listener);
    *listener.db.lock().unwrap() = Some(db.clone());
    fill(&db, 2000);
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    let stats = db.stats();
    *listener.db.lock().unwrap() = None;
    db.close().unwrap();
    let events = listener.events.lock().unwrap();
    let count = |wanted: fn(&Event) -> bool| events.iter().filter(|event| wanted(event)).count() as u64;
    assert_eq!(
        count(|event| matches!(event, Event::FlushBegun { .. })),
        count(|event| matches!(event, Event::FlushEnded { .. }))
    );
    assert!(count(|event| matches!(event, Event::FlushEnded { succeeded: true, .. })) >= stats.flushes);
    assert!(count(|event| matches!(event, Event::CompactionEnded { succeeded: true, .. })) >= stats.compactions);
    let (mut read, mut written) = (0, 0);
    for event in events.iter() {
        if let Event::FlushEnded { bytes, bytes_written, .. } = event {
            assert!(*bytes > 0);
            written += bytes_written;
        }
        if let Event::CompactionEnded { bytes, bytes_written, from, to, .. } = event {
            assert!(from <= to);
            read += bytes;
            written += bytes_written;
        }
    }
    assert!(read > 0 && written >= stats.table_bytes_written, "{read} read, {written} written");
}

#[test]
fn a_panicking_listener_is_harmless_and_failures_are_reported() {
    let listener = Arc::new(RecordingListener { panics: true, ..RecordingListener::default() });
    let disk = SimDisk::new();
    let db = open(&disk, &listener);
    fill(&db, 500);
    db.flush().unwrap();
    disk.set_faults(Faults { fail_write_after: Some(3), lasting: true, ..Faults::default() });
    while db.put("x", vec![1; 500]).is_ok() {}
    drop(db);
    let events = listener.events.lock().unwrap();
    assert!(events.iter().any(|event| matches!(event, Event::FlushEnded { succeeded: true, .. })));
    let poisoned = events.iter().filter(|event| matches!(event, Event::Poisoned { .. })).count();
    assert_eq!(poisoned, 1, "the first failure is reported once");
}

#[test]
fn stall_events_report_begin_and_end() {
    let listener = Arc::new(RecordingListener::default());
    let mut tuning = Tuning::tiny();
    (tuning.front_bytes_max, tuning.index_table_bytes) = (8 << 10, 1 << 10);
    let options = Options::new().listener(listener.clone());
    let db = testing::open(Arc::new(SimDisk::new()), Path::new("/db"), options, tuning).unwrap();
    fill(&db, 5000);
    let stats = db.stats();
    db.close().unwrap();
    let events = listener.events.lock().unwrap();
    let begun = events.iter().filter(|event| matches!(event, Event::StallBegun)).count() as u64;
    let ended = events.iter().filter(|event| matches!(event, Event::StallEnded { .. })).count() as u64;
    let lost = events.iter().any(|event| matches!(event, Event::Lost { .. }));
    assert!(
        lost || (begun == ended && ended == stats.stalls),
        "{begun} begun, {ended} ended, {} counted",
        stats.stalls
    );
}

/// A database in a directory that writes its statistics page every 20 ms.
fn open_with_page(path: &Path) -> Db {
    let mut tuning = Tuning::for_budget(16 << 20);
    tuning.stats_interval = Some(Duration::from_millis(20));
    let storage = Arc::new(testing::OsStorage::new());
    testing::open(storage, path, Options::new().memory_budget(16 << 20), tuning).unwrap()
}

/// Waits for a page with these figures.
fn wait_for_page(path: &Path, is_wanted: impl Fn(&Stats) -> bool) -> LiveStats {
    let began = Instant::now();
    loop {
        match live_stats(path).unwrap() {
            Some(live) if is_wanted(&live.stats) => return live,
            _ => assert!(began.elapsed().as_secs() < 20, "the page was not written"),
        }
    }
}

#[test]
fn an_open_database_has_a_statistics_page_and_a_closed_one_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    assert!(live_stats(&path).unwrap().is_none());
    let db = open_with_page(&path);
    fill(&db, 1000);
    db.flush().unwrap();
    let live = wait_for_page(&path, |stats| stats.seqno == 1000 && stats.flushes > 0);
    let stats = db.stats();
    assert_eq!(live.process, std::process::id());
    assert_eq!((live.stats.flushes, live.stats.user_bytes_written), (stats.flushes, stats.user_bytes_written));
    assert_eq!(live.stats.levels.iter().map(|level| level.tables).sum::<usize>(), 1);
    assert_eq!(live.stats.memory_budget, 16 << 20);
    db.close().unwrap();
    assert!(live_stats(&path).unwrap().is_none());
    assert!(!path.join("STATS").exists());
}

#[test]
fn unknown_files_and_odd_paths_end_neither_the_page_nor_the_deletion_of_files() {
    let dir = tempfile::tempdir().unwrap();
    #[cfg(unix)]
    let name: OsString = std::os::unix::ffi::OsStringExt::from_vec(b"not UTF-8: \xff".to_vec());
    #[cfg(not(unix))]
    let name = OsString::from("db");
    let path = dir.path().join(name);
    open_with_page(&path).close().unwrap();
    for number in 100_000..100_500 {
        std::fs::write(path.join(format!("{number:08}.table")), "of another").unwrap();
    }
    let db = open_with_page(&path);
    assert_eq!(db.stats().unknown_files.len(), 500);
    assert!(wait_for_page(&path, |_| true).stats.unknown_files.is_empty());
    // The thread that writes the page also deletes the table that the second compaction replaces.
    for _ in 0..2 {
        fill(&db, 1000);
        db.compact_range(&db.default_keyspace(), ..).unwrap();
    }
    db.wait_for_background().unwrap();
    let tables = || {
        let entries = std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "table")).count()
    };
    // A table goes with its last reader, which may be a thread that looks for work.
    let began = Instant::now();
    while tables() != 501 {
        assert!(began.elapsed().as_secs() < 20, "{} tables are left", tables());
        std::thread::yield_now();
    }
    db.close().unwrap();
}

#[test]
fn the_statistics_page_is_not_written_during_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = open_with_page(&path);
    fill(&db, 100);
    wait_for_page(&path, |stats| stats.seqno == 100);
    let pause = db.pause_background().unwrap();
    let before = std::fs::read(path.join("STATS")).unwrap();
    fill(&db, 100);
    std::thread::sleep(Duration::from_millis(300));
    assert!(std::fs::read(path.join("STATS")).unwrap() == before, "the page was written");
    pause.resume();
    wait_for_page(&path, |stats| stats.seqno == 200);
    db.close().unwrap();
}

#[cfg(feature = "metrics")]
mod metrics_facade {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};

    use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};

    use super::*;

    #[derive(Default)]
    struct Records {
        numbers: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    }

    /// A database that the recorder closes at the next figure, and the channel that reports the close.
    static CLOSE: Mutex<Option<(Db, std::sync::mpsc::Sender<()>)>> = Mutex::new(None);

    struct Count(Arc<AtomicU64>);

    impl HistogramFn for Count {
        fn record(&self, _: f64) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Records {
        fn place(&self, key: &Key) -> Arc<AtomicU64> {
            assert!(key.labels().any(|label| label.key() == "database"), "{key}");
            self.numbers.lock().unwrap().entry(key.name().to_owned()).or_default().clone()
        }
    }

    impl Recorder for &'static Records {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.place(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            let close = CLOSE.lock().unwrap().take();
            if let Some((db, closed)) = close {
                db.close().unwrap();
                closed.send(()).unwrap();
            }
            Gauge::from_arc(self.place(key))
        }
        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(Arc::new(Count(self.place(key))))
        }
    }

    #[test]
    fn figures_reach_the_recorder() {
        static RECORDS: std::sync::OnceLock<Records> = std::sync::OnceLock::new();
        let records = RECORDS.get_or_init(Records::default);
        metrics::set_global_recorder(records).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let db = Options::new().memory_budget(16 << 20).open(dir.path().join("db")).unwrap();
        fill(&db, 1000);
        db.flush().unwrap();
        db.close().unwrap();
        let numbers = records.numbers.lock().unwrap();
        let number = |name: &str| numbers.get(name).map_or(0, |number| number.load(Ordering::Relaxed));
        assert!(number("cleavedb_user_bytes_written_total") > 300_000, "{:?}", numbers.keys());
        assert!(number("cleavedb_flushes_total") >= 1 && number("cleavedb_flush_seconds") >= 1);
        assert!(numbers.contains_key("cleavedb_level_bytes"));
        drop(numbers);

        // The recorder may close the database that calls it.
        let db = Options::new().memory_budget(16 << 20).open(dir.path().join("other")).unwrap();
        let (closed, close_returned) = std::sync::mpsc::channel();
        *CLOSE.lock().unwrap() = Some((db.clone(), closed));
        close_returned.recv_timeout(Duration::from_secs(30)).expect("the close returns");
        assert!(matches!(db.put("k", "v"), Err(cleavedb::Error::Closed)));
        drop(db);
        assert!(!dir.path().join("other/STATS").exists());
    }
}

#[cfg(feature = "tracing")]
mod tracing_spans {
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Metadata, Subscriber};

    use super::*;

    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    struct Watch;

    /// The fields of a span, as text.
    struct Fields(String);

    impl tracing::field::Visit for Fields {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            if matches!(field.name(), "kind" | "binds") {
                self.0 += &format!(" {field}={value:?}");
            }
        }
    }

    impl Subscriber for Watch {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "cleavedb"
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let mut fields = Fields(format!("span {}", span.metadata().name()));
            span.record(&mut fields);
            SEEN.lock().unwrap().push(fields.0);
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            SEEN.lock().unwrap().push(format!("event {}", event.metadata().level()));
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn jobs_emit_tracing_spans_and_events() {
        tracing::subscriber::set_global_default(Watch).unwrap();
        let db = open(&SimDisk::new(), &Arc::new(RecordingListener::default()));
        fill(&db, 2000);
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.close().unwrap();
        let seen = SEEN.lock().unwrap();
        for wanted in
            [r#"span job kind="seal" binds="cpu""#, r#"span job kind="flush" binds="fast writes""#, "event INFO"]
        {
            assert!(seen.iter().any(|line| line == wanted), "{wanted} in {seen:?}");
        }
    }
}

#[test]
fn the_listener_thread_ends_with_the_database_however_it_was_opened() {
    let listener = Arc::new(RecordingListener::default());
    let disk = SimDisk::new();
    disk.set_mapping(false);
    let options = || Options::new().listener(listener.clone());
    let storage = || Arc::new(disk.clone());
    let refused =
        testing::open(storage(), Path::new("/db"), options().log_backend(cleavedb::LogBackend::Ring), Tuning::tiny());
    assert!(refused.is_err());
    assert_eq!(Arc::strong_count(&listener), 1, "after a failed open");
    testing::open(storage(), Path::new("/db"), options(), Tuning::tiny()).unwrap().close().unwrap();
    assert_eq!(Arc::strong_count(&listener), 1);
    testing::open(storage(), Path::new("/db"), options().read_only(true), Tuning::tiny()).unwrap().close().unwrap();
    assert_eq!(Arc::strong_count(&listener), 1, "a reader");
}
