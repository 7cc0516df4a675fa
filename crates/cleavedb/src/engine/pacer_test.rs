//! The pace as a function of the stages, the waits that follow from it, and the measured drain rate.

use super::*;

const MIB: f64 = 1048576.0;

fn stage(fill: f64, drain: f64) -> Stage {
    Stage { fill, drain, room: 1e12, left: 0.0, is_full: false }
}

fn limit(stages: &[Stage]) -> f64 {
    match pace(stages) {
        Pace::Limited(rate) => rate,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_pace_is_the_drain_rate_at_three_quarters_and_falls_with_the_fill() {
    assert_eq!(pace(&[stage(0.0, 100.0 * MIB), stage(0.49, 1.0)]), Pace::Free);
    assert_eq!(limit(&[stage(0.75, 100.0 * MIB)]), 100.0 * MIB);
    let fills = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
    let rates = fills.map(|fill| limit(&[stage(fill, 100.0 * MIB)]));
    assert!(rates.is_sorted_by(|more, less| more > less), "{rates:?}");
    assert!(rates[0] > 500.0 * MIB && rates[5] < 20.0 * MIB, "{rates:?}");
}

#[test]
fn the_slower_stage_sets_the_pace_and_a_full_one_stops_writers() {
    let (fast, slow) = (stage(0.75, 300.0 * MIB), stage(0.75, 40.0 * MIB));
    assert_eq!(limit(&[fast, slow]), 40.0 * MIB);
    assert_eq!(limit(&[slow, stage(0.3, 1.0)]), 40.0 * MIB);
    assert_eq!(pace(&[fast, Stage { is_full: true, ..slow }]), Pace::Stopped);
}

#[test]
fn the_remaining_room_must_last_until_the_running_job_ends() {
    let running = |room: f64, left: f64| Stage { room, left, ..stage(0.1, 100.0 * MIB) };
    assert_eq!(pace(&[running(40.0 * MIB, 10.0 * MIB)]), Pace::Free);
    assert_eq!(limit(&[running(20.0 * MIB, 10.0 * MIB)]), 200.0 * MIB);
    assert_eq!(limit(&[running(5.0 * MIB, 10.0 * MIB)]), 50.0 * MIB);
    assert_eq!(limit(&[Stage { fill: 0.75, ..running(20.0 * MIB, 10.0 * MIB) }]), 100.0 * MIB);
    assert_eq!(limit(&[running(0.0, 10.0 * MIB)]), PACE_MIN);
}

#[test]
fn the_pace_never_falls_below_its_minimum_and_an_unmeasured_stage_has_the_assumed_drain_rate() {
    assert_eq!(limit(&[stage(1.0, 1.0)]), PACE_MIN);
    assert_eq!(limit(&[stage(0.75, 0.0)]), DRAIN_FIRST);
}

#[test]
fn the_waits_of_writes_add_up_to_the_pace_and_no_single_wait_exceeds_its_maximum() {
    let rate = 1e6;
    // A write each 10, 25, 50 and 1000 us: the shortest wait, and one in how many waits.
    let cases =
        [(10, PACED_WAIT_LONG, 500), (25, PACED_WAIT_LONG, 200), (50, PACED_WAIT_MIN, 10), (1000, PACED_WAIT_MIN, 1)];
    for (bytes, shortest, one_in) in cases {
        let mut state = PacerState::default();
        let mut waits = Vec::new();
        let mut time = Duration::from_secs(1);
        for _ in 0..1_000_000 / bytes {
            let wait = state.charge(bytes, time, rate);
            waits.push(wait);
            time += wait;
        }
        let waited: Duration = waits.iter().sum();
        assert!((Duration::from_millis(990)..=Duration::from_millis(1000)).contains(&waited), "{bytes}: {waited:?}");
        let waits: Vec<Duration> = waits.into_iter().filter(|wait| !wait.is_zero()).collect();
        assert!(waits.iter().all(|wait| (shortest..=PACED_WAIT_MAX).contains(wait)), "{bytes}");
        assert_eq!(1_000_000 / bytes / waits.len() as u64, one_in, "{bytes}");
        assert_eq!(state.charge(100 << 20, time, rate), PACED_WAIT_MAX);
        state.refund(100 << 20);
        assert_eq!(state.charge(10, time, rate), Duration::ZERO);
    }
}

#[test]
fn progress_is_the_share_of_steps_done_and_counts_in_full_once_a_job_has_succeeded() {
    let progress = DrainProgress::default();
    assert!(!progress.is_running() && progress.current() == 0);
    progress.begin(1000, 200);
    progress.steps_done.fetch_add(50, Ordering::Relaxed);
    assert_eq!((progress.current(), progress.in_all()), (250, 250));
    progress.end(true);
    assert_eq!((progress.current(), progress.in_all()), (0, 1000));
    progress.begin(500, 10);
    progress.end(false);
    assert_eq!(progress.in_all(), 1000);
}

#[test]
fn the_drain_rate_is_measured_only_while_a_job_runs() {
    let (mut meter, progress) = (DrainMeter::default(), DrainProgress::default());
    let at = |ms: u64| Duration::from_millis(1000 + ms);
    meter.sample(at(0), &progress);
    progress.begin(1_000_000, 1000);
    meter.sample(at(500), &progress);
    assert_eq!(meter.rate, 0.0);
    progress.steps_done.fetch_add(100, Ordering::Relaxed);
    meter.sample(at(600), &progress);
    assert!((meter.rate - 1e6).abs() < 1.0, "{}", meter.rate);
    progress.end(true);
    meter.sample(at(700), &progress);
    progress.begin(1_000_000, 1000);
    // The pause since the last job must not lower the drain rate.
    meter.sample(at(60_000), &progress);
    assert!((meter.rate - 1e6).abs() < 1.0, "{}", meter.rate);
}

#[test]
fn what_passes_a_redirect_is_measured_while_no_job_runs_too() {
    const MB: u64 = 1 << 20;
    let at = |ms: u64| Duration::from_millis(1000 + ms);
    let close = |passage: Passage, rate: f64| assert!((passage.rate / rate - 1.0).abs() < 0.01, "{passage:?} {rate}");
    let first = Passage::begin(at(0), (5 * MB, 7 * MB), 100.0 * MIB);
    assert_eq!(first.after(at(10), (500 * MB, 7 * MB), 2.0), first, "too soon");
    assert_eq!(Passage::begin(at(0), (0, 0), 0.0).rate, DRAIN_FIRST);
    // Turns of four seconds, 40 MiB a second on average: a flush in the first one, and a compaction of HL0 in the last two. A table of
    // HL0 has half of what users wrote.
    let (mut passage, mut flushed, mut in_hl0, mut rates) = (first, 5 * MB, 7 * MB, Vec::new());
    for ms in (0..400_000).step_by(100) {
        match ms % 4000 {
            0..1000 => (flushed, in_hl0) = (flushed + 16 * MB, in_hl0 + 8 * MB),
            2000.. => in_hl0 -= 4 * MB,
            _ => {}
        }
        passage = passage.after(at(ms + 100), (flushed, in_hl0), 2.0);
        if ms > 300_000 {
            rates.push(passage.rate);
        }
    }
    let [least, most] = [f64::min, f64::max].map(|of| rates.iter().copied().reduce(of).unwrap());
    assert!(least > 37.0 * MIB && most < 43.0 * MIB, "{least} {most}");
    // Another estimate of what tables hold is not something that passed.
    close(passage.after(at(400_100), (flushed, in_hl0), 100.0), passage.rate * 0.995);
    // Nothing passes: it falls, as far as the slowest pace. What goes back for a moment does not matter.
    close(passage.after(at(420_000), (flushed, in_hl0), 2.0), passage.rate * (-1.0f64).exp());
    assert_eq!(passage.after(at(410_000), (flushed, in_hl0 + 1000 * MB), 2.0).rate, PACE_MIN);
}

#[test]
fn a_flush_does_not_change_the_fill_of_front_and_hl0_together() {
    // The front has a limit of 1000, HL0 of 200; 50 go from one to the other.
    let (before, after) = (fill_together((0.8, 1000.0), (0.25, 200.0)), fill_together((0.75, 1000.0), (0.5, 200.0)));
    assert!((before - after).abs() < 1e-9 && (before - 850.0 / 1200.0).abs() < 1e-9, "{before} {after}");
    assert_eq!(fill_together((1.0, 1000.0), (1.0, 200.0)), 1.0);
    // Without room for more logs it is little else than HL0.
    assert!((fill_together((0.0, 1.0), (0.75, 199.0)) - 0.746).abs() < 0.001);
}

#[test]
fn writers_wait_lately_for_a_second_after_each_wait() {
    let (mut state, at) = (PacerState::default(), Duration::from_millis);
    assert!(!state.wait_lately(at(0), 0) && !state.wait_lately(at(100), 0));
    assert!(state.wait_lately(at(200), 3));
    assert!(state.wait_lately(at(1_100), 3));
    assert!(!state.wait_lately(at(1_300), 3));
    assert!(state.wait_lately(at(1_400), 4));
}
