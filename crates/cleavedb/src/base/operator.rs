//! Merge operators, which turn deltas (merge operands) into values. Operators are registered by name when the database
//! is opened, and selected per keyspace when the keyspace is created.
//!
//! Called by reads, and by jobs that merge versions ([`versions`](super::versions)).

use std::sync::Arc;

use super::key::KeyspaceId;
use super::limits;

/// Combines deltas (merge operands) with the value below them.
///
/// Both functions must be pure: the same input gives the same output, in any process. Panics are caught: the operands
/// are kept, and only reads of that key fail (rule 11 of `docs/ARCHITECTURE.md`).
pub trait MergeOperator: Send + Sync + 'static {
    /// The name, which the manifest stores with every keyspace that uses the operator; never change its meaning.
    fn name(&self) -> &str;

    /// The value of `key` after `operands`, oldest first, are applied to `base` (`None`: the key has no value).
    ///
    /// # Errors
    /// A sentence that describes the problem; the read of this key fails with it, and the operands are kept.
    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String>;

    /// One operand with the effect of `older` followed by `newer`; `None` if they cannot be combined.
    fn partial_merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>>;
}

/// Looks up merge operators by keyspace.
pub trait OperatorSource: Send + Sync {
    /// The operator of `keyspace`; `None` if it has none, or if its operator is not registered.
    fn operator(&self, keyspace: KeyspaceId) -> Option<Arc<dyn MergeOperator>>;
}

/// Calls `full_merge` and converts a panic into an error.
pub fn full_merge(
    operator: &dyn MergeOperator,
    key: &[u8],
    base: Option<&[u8]>,
    operands: &[&[u8]],
) -> Result<Vec<u8>, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| operator.full_merge(key, base, operands)))
        .unwrap_or_else(|_| Err(format!("merge operator {:?} panicked", operator.name())))
}

/// Calls `partial_merge`; a panic means that the operands cannot be combined.
pub fn partial_merge(operator: &dyn MergeOperator, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| operator.partial_merge(key, older, newer))).unwrap_or(None)
}

/// A version of a key that may be an operand which can be combined with its neighbours.
pub trait Joinable: Sized {
    /// The operand, inline; `None` for any other version, which nothing is combined with.
    fn operand(&self) -> Option<&[u8]>;

    /// The version that replaces `older` and `newer`, given what both combine to.
    fn joined(older: &Self, newer: &Self, operand: Vec<u8>) -> Self;
}

/// Combines the operands of one key, given oldest first, with their neighbours as far as the operator can. Returns what is left,
/// oldest first.
///
/// An operand is combined only with what is about as large, as runs of a sort are merged. So each byte is copied O(log n) times,
/// though results grow; combined from the oldest on, each would be copied with all that follow it. A pair counts as one that
/// cannot be combined once all that is older, up to the last such pair, has refused the newer one.
pub fn join_neighbours<T: Joinable>(
    operator: &dyn MergeOperator,
    user_key: &[u8],
    oldest_first: impl IntoIterator<Item = T>,
) -> Vec<T> {
    let mut joining = Joining { operator, user_key, items: Vec::new(), closed: 0 };
    oldest_first.into_iter().for_each(|item| joining.push(item));
    joining.collapse();
    joining.items
}

/// What [`join_neighbours`] has come to.
struct Joining<'a, T> {
    operator: &'a dyn MergeOperator,
    user_key: &'a [u8],
    /// Oldest first. Those from `closed` on may still be combined; each is at least twice as large as the next.
    items: Vec<T>,
    closed: usize,
}

impl<T: Joinable> Joining<'_, T> {
    fn push(&mut self, item: T) {
        self.items.push(item);
        while self.is_last_due() {
            if self.join_last() {
                continue;
            }
            if self.items.len() - self.closed > 2 {
                let newer = self.items.pop().expect("there are three items");
                self.collapse();
                self.items.push(newer);
                if self.join_last() {
                    continue;
                }
            }
            self.closed = self.items.len() - 1;
        }
    }

    /// The last two items may be combined, and are of similar size.
    fn is_last_due(&self) -> bool {
        let weight = |item: &T| item.operand().map_or(0, <[u8]>::len) + 1;
        match &self.items[self.closed..] {
            [.., older, newer] => weight(older) < 2 * weight(newer),
            _ => false,
        }
    }

    /// Combines the last two items; false if that is not possible.
    fn join_last(&mut self) -> bool {
        let [.., older, newer] = &self.items[self.closed..] else { return false };
        let (Some(below), Some(above)) = (older.operand(), newer.operand()) else { return false };
        let Some(operand) = partial_merge(self.operator, self.user_key, below, above) else { return false };
        if operand.len() >= limits::VALUE_BYTES_LIMIT {
            return false;
        }
        let joined = T::joined(older, newer, operand);
        self.items.truncate(self.items.len() - 2);
        self.items.push(joined);
        true
    }

    /// Combines all that may still be: at most one item is left that may be combined with a newer one.
    fn collapse(&mut self) {
        let mut refused = Vec::new();
        while self.items.len() - self.closed > 1 {
            if !self.join_last() {
                refused.extend(self.items.pop());
            }
        }
        for newer in refused.into_iter().rev() {
            self.items.push(newer);
            if !self.join_last() {
                self.closed = self.items.len() - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::operators::{Append, FieldPatch, builtin};
    use super::super::patches::Patches;
    use super::*;

    #[derive(Debug, Clone, PartialEq)]
    struct Operand {
        bytes: Option<Vec<u8>>,
        /// The places, in the list that was given, of what was combined into it.
        first: usize,
        last: usize,
    }

    impl Joinable for Operand {
        fn operand(&self) -> Option<&[u8]> {
            self.bytes.as_deref()
        }

        fn joined(older: &Self, newer: &Self, operand: Vec<u8>) -> Self {
            assert_eq!(older.last + 1, newer.first, "only neighbours are combined, in their order");
            Operand { bytes: Some(operand), first: older.first, last: newer.last }
        }
    }

    fn operands(of: &[Option<Vec<u8>>]) -> Vec<Operand> {
        of.iter().enumerate().map(|(at, bytes)| Operand { bytes: bytes.clone(), first: at, last: at }).collect()
    }

    /// From the oldest on.
    fn naive(operator: &dyn MergeOperator, all: Vec<Operand>) -> Vec<Operand> {
        let mut combined: Vec<Operand> = Vec::new();
        for newer in all {
            let joined = combined.last().and_then(|older| {
                Some(Operand::joined(
                    older,
                    &newer,
                    operator.partial_merge(b"key", older.operand()?, newer.operand()?)?,
                ))
            });
            match joined {
                Some(joined) => *combined.last_mut().unwrap() = joined,
                None => combined.push(newer),
            }
        }
        combined
    }

    /// Joins operands that begin with the same letter, or whose joined length is even if `is_choosy`: whether two can be
    /// combined then depends on what was combined before.
    struct Letters {
        is_choosy: bool,
    }

    impl MergeOperator for Letters {
        fn name(&self) -> &str {
            "letters"
        }

        fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
            Ok(base.into_iter().chain(operands.iter().copied()).flatten().copied().collect())
        }

        fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
            let joins =
                older.first() == newer.first() || self.is_choosy && (older.len() + newer.len()).is_multiple_of(2);
            joins.then(|| [older, newer].concat())
        }
    }

    fn full(operator: &dyn MergeOperator, all: &[Operand]) -> Result<Vec<u8>, String> {
        let operands: Vec<&[u8]> = all.iter().filter_map(Operand::operand).collect();
        operator.full_merge(b"key", Some(b"base"), &operands)
    }

    fn letters() -> impl Strategy<Value = Vec<Option<Vec<u8>>>> {
        let operand = (0u8..3, 1usize..40).prop_map(|(letter, len)| vec![b'a' + letter; len]);
        vec(proptest::option::weighted(0.95, operand), 0..80)
    }

    proptest! {
        #[test]
        fn what_can_be_combined_is_what_the_naive_way_combines(of in letters()) {
            let operator = Letters { is_choosy: false };
            let joined = join_neighbours(&operator, b"key", operands(&of));
            prop_assert_eq!(joined, naive(&operator, operands(&of)));
        }

        #[test]
        fn whatever_an_operator_refuses_the_order_stays(of in letters()) {
            let operator = Letters { is_choosy: true };
            let joined = join_neighbours(&operator, b"key", operands(&of));
            prop_assert_eq!(full(&operator, &joined), full(&operator, &operands(&of)));
            let others = |all: &[Operand]| all.iter().filter(|it| it.bytes.is_none()).cloned().collect::<Vec<_>>();
            prop_assert_eq!(others(&joined), others(&operands(&of)));
            let covered: Vec<usize> = joined.iter().flat_map(|it| it.first..=it.last).collect();
            prop_assert!(covered.into_iter().eq(0..of.len()));
        }

        #[test]
        fn the_built_in_operators_give_the_same_values(
            which in 0usize..6,
            of in vec(vec(any::<u8>(), 0..12), 1..40),
            numbers in vec(any::<u64>(), 1..40),
            patches in vec((0u32..12, vec(any::<u8>(), 1..8)), 1..40),
        ) {
            let operator = &*builtin()[which];
            let of: Vec<Option<Vec<u8>>> = match which {
                0 => numbers.iter().map(|number| Some(number.to_le_bytes().to_vec())).collect(),
                4 => patches.iter().map(|(at, of)| Some(FieldPatch::operand(*at, of))).collect(),
                5 => patches.iter().map(|(at, of)| Some(Patches::operand(*at, of))).collect(),
                _ => of.into_iter().map(Some).collect(),
            };
            let joined = join_neighbours(operator, b"key", operands(&of));
            let value = |all: &[Operand]| {
                let operands: Vec<&[u8]> = all.iter().filter_map(Operand::operand).collect();
                operator.full_merge(b"key", None, &operands)
            };
            prop_assert_eq!(value(&joined), value(&operands(&of)));
            prop_assert!(which == 4 || joined.len() == 1, "{} are left", joined.len());
        }
    }

    /// Appends, and counts calls and the bytes of their results.
    #[derive(Default)]
    struct Counted {
        append: Append,
        calls: AtomicUsize,
        bytes: AtomicUsize,
    }

    impl MergeOperator for Counted {
        fn name(&self) -> &str {
            "counted"
        }

        fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
            self.append.full_merge(key, base, operands)
        }

        fn partial_merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
            let joined = self.append.partial_merge(key, older, newer)?;
            self.calls.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(joined.len(), Ordering::Relaxed);
            Some(joined)
        }
    }

    #[test]
    fn each_byte_is_copied_a_logarithmic_number_of_times() {
        const COUNT: usize = 4096;
        for large_at in [None, Some(0), Some(COUNT / 2), Some(COUNT - 1)] {
            let counted = Counted::default();
            let len = |at: usize| if Some(at) == large_at { 1 << 20 } else { 100 };
            let all: Vec<_> = (0..COUNT).map(|at| Some(vec![at as u8; len(at)])).collect();
            let joined = join_neighbours(&counted, b"key", operands(&all));
            assert_eq!(joined, naive(&Append::default(), operands(&all)));
            assert_eq!(counted.calls.into_inner(), COUNT - 1);
            let (total, copied) = (joined[0].operand().unwrap().len(), counted.bytes.into_inner());
            assert!(copied < 16 * total, "{copied} bytes for {total}");
        }
    }

    #[test]
    fn an_operator_that_combines_nothing_is_asked_once_for_each_pair() {
        struct Never(AtomicUsize);
        impl MergeOperator for Never {
            fn name(&self) -> &str {
                "never"
            }

            fn full_merge(&self, _key: &[u8], _base: Option<&[u8]>, _operands: &[&[u8]]) -> Result<Vec<u8>, String> {
                Err("not called".into())
            }

            fn partial_merge(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
                self.0.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
        let never = Never(AtomicUsize::new(0));
        let all: Vec<_> = (0..1000).map(|at| Some(vec![0; at % 7])).collect();
        assert_eq!(join_neighbours(&never, b"key", operands(&all)), operands(&all));
        assert!(never.0.into_inner() < 3 * 1000);
    }
}
