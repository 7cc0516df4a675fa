//! Tests of the state of background work.

use super::*;
use crate::base::Tier;

fn profile(class: Class, claims: Claims) -> Profile {
    Profile {
        name: "a job of a test",
        claims,
        binds: Binds::CPU,
        class,
        memory: MemoryShare::Compaction,
        need: Need::Compaction,
        meets_need: true,
    }
}

fn table(id: u64) -> Claims {
    Claims(vec![Claim::Table(FileId(id))])
}

#[test]
fn a_job_holds_its_claims_until_it_ends() {
    let mut state = WorkState::default();
    let first = state.begin(profile(Class::Mandatory, table(1)), Owner::Background);
    let second = state.begin(profile(Class::Mandatory, table(2)), Owner::Caller);
    assert!(state.is_claimed(&table(1)) && state.is_claimed(&table(2)) && !state.is_claimed(&table(3)));
    assert_eq!(state.claimed_tables(), BTreeSet::from([FileId(1), FileId(2)]));
    state.join(first);
    assert_eq!(state.compacting_threads(), 3);
    state.leave(first);
    state.end(first, &Ok(()), Duration::ZERO);
    assert!(!state.is_claimed(&table(1)) && state.is_claimed(&table(2)) && state.has_callers());
    state.end(second, &Ok(()), Duration::ZERO);
    assert!(!state.has_jobs() && !state.has_callers());
    assert_eq!((state.compacting_threads(), state.begun()), (0, 2));
}

#[test]
fn a_job_binds_its_resources_while_a_thread_of_the_pool_works_on_it() {
    let mut state = WorkState::default();
    let begin = |state: &mut WorkState, id, binds, worker| {
        let number = state.begin(Profile { binds, ..profile(Class::Mandatory, table(id)) }, Owner::Background);
        state.enter(number, worker);
        number
    };
    let (reads, writes) = (Binds::CPU | Binds::read(Tier::Slow), Binds::write(Tier::Slow));
    let compaction = begin(&mut state, 1, reads, Worker::First);
    begin(&mut state, 2, Binds::write(Tier::Fast), Worker::Beside);
    assert_eq!((state.bound(false), state.bound(true)), (reads, Binds::NONE));
    // The first thread serves the front at a yield point.
    let flush = begin(&mut state, 3, writes, Worker::First);
    assert_eq!((state.bound(false), state.bound(true)), (writes, Binds::NONE));
    // Another thread helps with the compaction meanwhile.
    state.join(compaction);
    state.enter(compaction, Worker::Other);
    assert_eq!(state.bound(false), reads | writes);
    state.end(flush, &Ok(()), Duration::ZERO);
    state.exit(Worker::First);
    assert_eq!(state.bound(true), reads);
    state.leave(compaction);
    state.exit(Worker::Other);
    assert_eq!((state.bound(true), state.bound(false)), (Binds::NONE, reads));
}

#[test]
fn idle_work_begins_a_second_after_mandatory_work_or_once_a_caller_waits_for_all_work() {
    let mut state = WorkState::default();
    let job = state.begin(profile(Class::Mandatory, table(1)), Owner::Background);
    state.end(job, &Ok(()), Duration::from_secs(7));
    assert!(state.note(ActivityChange::NothingDue));
    state.note_rest(Duration::from_millis(7999));
    assert_eq!(state.activity(), Activity::Quiet);
    assert_eq!(state.rested_in(Duration::from_millis(7999)), Some(Duration::from_millis(1)));
    state.begin_waiting();
    state.note_rest(Duration::from_millis(7999));
    assert_eq!(state.activity(), Activity::Idle);
    // An idle job leaves the state `Idle`; a mandatory job ends it.
    state.begin(profile(Class::Idle, table(2)), Owner::Background);
    assert_eq!(state.activity(), Activity::Idle);
    state.begin(profile(Class::Mandatory, table(3)), Owner::Background);
    assert_eq!(state.activity(), Activity::Busy);
    state.note_done();
    assert!(state.is_done());
    state.begin(profile(Class::Mandatory, table(4)), Owner::Background);
    assert!(!state.is_done(), "a job has begun");
    state.end_waiting();
    state.note(ActivityChange::NothingDue);
    state.note_rest(Duration::from_secs(8));
    assert_eq!(state.activity(), Activity::Idle);
}
