//! Random operations compared with a model. Operations are data, so a failing sequence shrinks to a short one.
//! `CLEAVE_CASES` sets how many sequences are tried.

use std::ops::Bound;

use cleave_sim::material::{KEYS, Value};
use cleave_sim::operation::{Ack, Change, Crash, Effect, FIRST_CHANGING_SLOT, Operation, SLOTS, Scan, Span};
use cleave_sim::session::{Ground, Session};
use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{LogBackend, Options};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::strategy::Union;

fn values() -> impl Strategy<Value = Value> {
    let len = prop_oneof![
        2 => Just(0_u32),
        20 => 1..64_u32,
        8 => 185..200_u32,
        8 => 1000..9000_u32,
        1 => 90_000..110_000_u32,
    ];
    (any::<u32>(), len).prop_map(|(seed, len)| Value { seed, len })
}

fn keys() -> impl Strategy<Value = u16> {
    prop_oneof![3 => 0..12_u16, 1 => 0..KEYS]
}

fn slots() -> impl Strategy<Value = u8> {
    prop_oneof![1 => Just(0_u8), 2 => 0..SLOTS]
}

fn changes() -> impl Strategy<Value = Change> {
    let effect = prop_oneof![
        4 => values().prop_map(Effect::Put),
        1 => Just(Effect::Delete),
        2 => values().prop_map(Effect::Merge),
        1 => spans().prop_map(Effect::Clear),
    ];
    (slots(), keys(), effect).prop_map(|(slot, key, effect)| Change { slot, key, effect })
}

fn bounds() -> impl Strategy<Value = Bound<u16>> {
    prop_oneof![Just(Bound::Unbounded), keys().prop_map(Bound::Included), keys().prop_map(Bound::Excluded)]
}

fn spans() -> impl Strategy<Value = Span> {
    prop_oneof![
        Just(Span::All),
        (keys(), 0..9_u8).prop_map(|(key, len)| Span::Prefix(key, len)),
        (bounds(), bounds()).prop_map(|(low, high)| Span::Between(low, high)),
    ]
}

fn scans() -> impl Strategy<Value = Scan> {
    let ends = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()];
    let limit = prop_oneof![Just(3), Just(1000)];
    (slots(), spans(), ends, limit, option::of(any::<u8>())).prop_map(|(slot, span, ends, limit, snapshot)| Scan {
        slot,
        span,
        ends,
        limit,
        snapshot,
    })
}

fn operations(crashes: bool) -> impl Strategy<Value = Operation> {
    let acks =
        prop_oneof![3 => Just(Ack::Default), 2 => Just(Ack::Buffered), 1 => Just(Ack::Sync), 1 => Just(Ack::Interval)];
    let changing = FIRST_CHANGING_SLOT..SLOTS;
    let snapshot = option::of(any::<u8>());
    let mut choices = vec![
        (20, (vec(changes(), 1..8), acks).prop_map(|(changes, ack)| Operation::Write(changes, ack)).boxed()),
        (
            6,
            (slots(), keys(), snapshot.clone())
                .prop_map(|(slot, key, snapshot)| Operation::Get { slot, key, snapshot })
                .boxed(),
        ),
        (6, scans().prop_map(Operation::Scan).boxed()),
        (2, scans().prop_map(Operation::Keys).boxed()),
        (
            3,
            (slots(), vec(keys(), 0..40), snapshot)
                .prop_map(|(slot, keys, snapshot)| Operation::MultiGet { slot, keys, snapshot })
                .boxed(),
        ),
        (
            3,
            (slots(), spans(), 0..20_u8)
                .prop_map(|(slot, span, pulls)| Operation::Refresh { slot, span, pulls })
                .boxed(),
        ),
        (
            1,
            (slots(), vec((keys(), values()), 0..30)).prop_map(|(slot, puts)| Operation::Ingest { slot, puts }).boxed(),
        ),
        (2, Just(Operation::TakeSnapshot).boxed()),
        (1, any::<u8>().prop_map(Operation::ReleaseSnapshot).boxed()),
        (1, Just(Operation::Sync).boxed()),
        (2, Just(Operation::Flush).boxed()),
        (1, (slots(), spans()).prop_map(|(slot, span)| Operation::Compact(slot, span)).boxed()),
        (1, changing.clone().prop_map(Operation::Create).boxed()),
        (1, changing.prop_map(Operation::Drop).boxed()),
        (1, Just(Operation::Reopen).boxed()),
    ];
    if crashes {
        choices.push((1, Just(Operation::Crash(Crash::Process)).boxed()));
        choices.push((1, any::<u64>().prop_map(|seed| Operation::Crash(Crash::Power(seed))).boxed()));
    }
    Union::new_weighted(choices)
}

fn logs() -> impl Strategy<Value = LogBackend> {
    prop_oneof![Just(LogBackend::Ring), Just(LogBackend::Plain)]
}

fn cases(default: u32) -> ProptestConfig {
    let cases = std::env::var("CLEAVE_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(default),
        max_shrink_iters: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn run(ground: Ground, backend: LogBackend, operations: &[Operation]) -> Result<(), String> {
    let options = Options::new().log_backend(backend);
    let mut session = Session::new(ground, options, Tuning::tiny()).map_err(|failure| failure.to_string())?;
    for (number, operation) in operations.iter().enumerate() {
        session.apply(operation).map_err(|failure| format!("operation {number}, {operation:?}: {failure}"))?;
    }
    session.finish().map_err(|failure| format!("at the end: {failure}"))
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn random_operations_on_a_simulated_disk_match_the_model(
        operations in vec(operations(true), 1..150),
        backend in logs(),
        seed in any::<u64>(),
    ) {
        let run = move || run(Ground::Simulated(SimDisk::new()), backend, &operations);
        let result = testing::simulate(seed, run).map_err(|failure| failure.to_string()).and_then(|result| result);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}

proptest! {
    #![proptest_config(cases(8))]

    #[test]
    fn random_operations_in_a_directory_match_the_model(
        operations in vec(operations(false), 1..150),
        backend in logs(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let result = run(Ground::Directory(directory.path().join("db")), backend, &operations);
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}
