//! The built-in merge operators, which every database registers under the names given here.
//!
//! All of them are associative: merging two operands first and then applying the result gives the same value as
//! applying one after the other. No operator returns a value that exceeds the limits. Called through [`MergeOperator`];
//! users select them with `KeyspaceOptions::merge_operator`.

use std::sync::Arc;

use super::limits::VALUE_BYTES_LIMIT;
use super::operator::MergeOperator;
pub use super::patches::Patches;

/// One of each built-in operator, as every database registers them.
pub fn builtin() -> Vec<Arc<dyn MergeOperator>> {
    vec![
        Arc::new(U64Add),
        Arc::new(Append::default()),
        Arc::new(Max),
        Arc::new(Min),
        Arc::new(FieldPatch),
        Arc::new(Patches),
    ]
}

/// `u64-add`: adds counters. Value and operand: 8 bytes, little-endian. A missing value is 0; sums saturate at
/// `u64::MAX`.
#[derive(Debug, Clone, Copy, Default)]
pub struct U64Add;

impl U64Add {
    fn decode(bytes: &[u8]) -> Option<u64> {
        bytes.try_into().ok().map(u64::from_le_bytes)
    }
}

impl MergeOperator for U64Add {
    fn name(&self) -> &str {
        "u64-add"
    }

    fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mut sum = match base {
            Some(base) => U64Add::decode(base)
                .ok_or_else(|| format!("u64-add needs a value of 8 bytes, and this one has {}", base.len()))?,
            None => 0,
        };
        for operand in operands {
            let term = U64Add::decode(operand)
                .ok_or_else(|| format!("u64-add needs operands of 8 bytes, and one has {}", operand.len()))?;
            sum = sum.saturating_add(term);
        }
        Ok(sum.to_le_bytes().to_vec())
    }

    fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let sum = U64Add::decode(older)?.saturating_add(U64Add::decode(newer)?);
        Some(sum.to_le_bytes().to_vec())
    }
}

/// `append`: appends operands to the value, oldest first, with a separator between them (default `,`).
///
/// Operands are any bytes. A missing value contributes nothing, not even a separator; an empty value is an element like
/// any other. The name includes any other separator (`append:|`), because the name identifies the meaning of stored
/// operands; such an operator must be registered in `Options` at every open.
#[derive(Debug, Clone)]
pub struct Append {
    name: String,
    separator: Vec<u8>,
}

impl Append {
    /// Joins with `separator`, which may be empty. The name is `append` for `,`, else `append:` and the separator,
    /// bytes that are not printable ASCII escaped.
    pub fn new(separator: impl Into<Vec<u8>>) -> Append {
        let separator = separator.into();
        let name = match &separator[..] {
            b"," => "append".to_owned(),
            other => format!("append:{}", other.escape_ascii()),
        };
        Append { name, separator }
    }

    /// Joins the parts with separators; `None` if the result is longer than the limit of values.
    fn join(&self, parts: &[&[u8]]) -> Option<Vec<u8>> {
        let bytes = parts.iter().map(|part| part.len()).sum::<usize>();
        let separators = self.separator.len().checked_mul(parts.len().saturating_sub(1))?;
        if bytes.checked_add(separators)? >= VALUE_BYTES_LIMIT {
            return None;
        }
        Some(parts.join(&self.separator[..]))
    }
}

impl Default for Append {
    fn default() -> Append {
        Append::new(*b",")
    }
}

impl MergeOperator for Append {
    fn name(&self) -> &str {
        &self.name
    }

    fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let parts: Vec<&[u8]> = base.iter().chain(operands).copied().collect();
        self.join(&parts).ok_or_else(|| {
            format!("append would make a value of {VALUE_BYTES_LIMIT} bytes or more, which exceeds the limit")
        })
    }

    fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.join(&[older, newer])
    }
}

/// `max`: keeps the greatest of value and operands in byte order. Operands are any bytes; a missing value is ignored.
#[derive(Debug, Clone, Copy, Default)]
pub struct Max;

impl MergeOperator for Max {
    fn name(&self) -> &str {
        "max"
    }

    fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let greatest = base.iter().chain(operands).copied().max();
        greatest.map(<[u8]>::to_vec).ok_or_else(|| "max needs a value or an operand".to_owned())
    }

    fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some(older.max(newer).to_vec())
    }
}

/// `min`: keeps the least of value and operands in byte order. Operands are any bytes; a missing value is ignored.
#[derive(Debug, Clone, Copy, Default)]
pub struct Min;

impl MergeOperator for Min {
    fn name(&self) -> &str {
        "min"
    }

    fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let least = base.iter().chain(operands).copied().min();
        least.map(<[u8]>::to_vec).ok_or_else(|| "min needs a value or an operand".to_owned())
    }

    fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some(older.min(newer).to_vec())
    }
}

/// `field-patch`: overwrites a part of the value.
///
/// Operand: the offset (u32, little-endian), then the bytes that go there. A value that ends before offset + length
/// grows to that size, zeros filling what no patch wrote; a missing value is an empty one. [`FieldPatch::operand`]
/// makes operands.
#[derive(Debug, Clone, Copy, Default)]
pub struct FieldPatch;

impl FieldPatch {
    /// The operand that writes `bytes` at `offset`.
    pub fn operand(offset: u32, bytes: &[u8]) -> Vec<u8> {
        let mut operand = Vec::with_capacity(4 + bytes.len());
        operand.extend_from_slice(&offset.to_le_bytes());
        operand.extend_from_slice(bytes);
        operand
    }

    /// The offset and the bytes of an operand; `None` if it is shorter than an offset.
    fn decode(operand: &[u8]) -> Option<(usize, &[u8])> {
        let (offset, bytes) = operand.split_first_chunk::<4>()?;
        Some((u32::from_le_bytes(*offset) as usize, bytes))
    }
}

impl MergeOperator for FieldPatch {
    fn name(&self) -> &str {
        "field-patch"
    }

    fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mut value = base.unwrap_or_default().to_vec();
        for operand in operands {
            let (start, bytes) = FieldPatch::decode(operand).ok_or_else(|| {
                format!("field-patch needs operands of 4 bytes (the offset) or more, and one has {}", operand.len())
            })?;
            let end = start.saturating_add(bytes.len());
            if end >= VALUE_BYTES_LIMIT {
                return Err(format!(
                    "field-patch up to byte {end} would exceed the limit of {VALUE_BYTES_LIMIT} bytes"
                ));
            }
            if value.len() < end {
                value.resize(end, 0);
            }
            value[start..end].copy_from_slice(bytes);
        }
        Ok(value)
    }

    /// Two patches are combined if they overlap or touch. With a gap between them they are not: the bytes in the gap
    /// are those of the value below, which is not known here.
    fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let (older_start, older_bytes) = FieldPatch::decode(older)?;
        let (newer_start, newer_bytes) = FieldPatch::decode(newer)?;
        let (older_end, newer_end) = (older_start + older_bytes.len(), newer_start + newer_bytes.len());
        let (start, end) = (older_start.min(newer_start), older_end.max(newer_end));
        if newer_start > older_end || older_start > newer_end || end >= VALUE_BYTES_LIMIT {
            return None;
        }
        let mut union = FieldPatch::operand(u32::try_from(start).ok()?, &[]);
        union.resize(4 + end - start, 0);
        let patch = &mut union[4..];
        patch[older_start - start..older_end - start].copy_from_slice(older_bytes);
        patch[newer_start - start..newer_end - start].copy_from_slice(newer_bytes);
        Some(union)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const KEY: &[u8] = b"key";

    fn number(value: u64) -> Vec<u8> {
        value.to_le_bytes().to_vec()
    }

    fn full(operator: &dyn MergeOperator, base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        operator.full_merge(KEY, base, operands)
    }

    #[test]
    fn builtin_names_are_fixed_and_distinct() {
        let operators = builtin();
        let names: Vec<&str> = operators.iter().map(|operator| operator.name()).collect();
        assert_eq!(names, ["u64-add", "append", "max", "min", "field-patch", "patches"]);
    }

    #[test]
    fn u64_add_starts_at_zero_and_saturates() {
        assert_eq!(full(&U64Add, None, &[&number(2), &number(3)]), Ok(number(5)));
        assert_eq!(full(&U64Add, Some(&number(u64::MAX - 1)), &[&number(2)]), Ok(number(u64::MAX)));
        assert_eq!(U64Add.partial_merge(KEY, &number(u64::MAX), &number(1)), Some(number(u64::MAX)));
    }

    #[test]
    fn u64_add_rejects_other_lengths_and_reports_them() {
        assert!(full(&U64Add, Some(b"12"), &[&number(1)]).unwrap_err().contains("has 2"));
        assert!(full(&U64Add, None, &[&number(1), b"123456789"]).unwrap_err().contains("has 9"));
        assert_eq!(U64Add.partial_merge(KEY, b"", &number(1)), None);
        assert_eq!(U64Add.partial_merge(KEY, &number(1), b"1"), None);
    }

    #[test]
    fn append_separates_elements_but_not_a_missing_value() {
        let append = Append::default();
        assert_eq!(full(&append, None, &[b"a", b"b"]), Ok(b"a,b".to_vec()));
        assert_eq!(full(&append, Some(b""), &[b"a"]), Ok(b",a".to_vec()));
        assert_eq!(full(&Append::new("::"), Some(b"x"), &[b"a", b""]), Ok(b"x::a::".to_vec()));
    }

    #[test]
    fn the_name_of_append_includes_every_separator_but_the_default() {
        assert_eq!(Append::new(",").name(), "append");
        assert_eq!(Append::new("|").name(), "append:|");
        assert_eq!(Append::new("").name(), "append:");
        assert_ne!(Append::new("\n").name(), Append::new("\\n").name());
    }

    #[test]
    fn max_and_min_compare_bytes_and_ignore_a_missing_value() {
        assert_eq!(full(&Max, None, &[b"b", b"a"]), Ok(b"b".to_vec()));
        assert_eq!(full(&Max, Some(b"b\0"), &[b"b", b"a"]), Ok(b"b\0".to_vec()));
        assert_eq!(full(&Min, None, &[b"b", b"c"]), Ok(b"b".to_vec()));
        assert_eq!(full(&Min, Some(b"a"), &[b"", b"c"]), Ok(b"".to_vec()));
        assert!(full(&Max, None, &[]).is_err());
        assert!(full(&Min, None, &[]).is_err());
    }

    #[test]
    fn field_patch_overwrites_and_grows_with_zeros() {
        let patch = FieldPatch::operand;
        assert_eq!(full(&FieldPatch, Some(b"hello"), &[&patch(1, b"a")]), Ok(b"hallo".to_vec()));
        assert_eq!(full(&FieldPatch, Some(b"ab"), &[&patch(4, b"x")]), Ok(b"ab\0\0x".to_vec()));
        assert_eq!(full(&FieldPatch, None, &[&patch(2, b"")]), Ok(b"\0\0".to_vec()));
        assert!(full(&FieldPatch, None, &[b"123"]).unwrap_err().contains("has 3"));
    }

    #[test]
    fn a_field_patch_beyond_the_value_limit_is_rejected_without_allocating() {
        let far = FieldPatch::operand(u32::MAX, b"x");
        assert!(full(&FieldPatch, None, &[&far]).unwrap_err().contains("limit"));
        assert_eq!(FieldPatch.partial_merge(KEY, &far, &far), None);
    }

    #[test]
    fn field_patches_with_a_gap_between_them_are_not_combined() {
        let patch = FieldPatch::operand;
        assert_eq!(FieldPatch.partial_merge(KEY, &patch(0, b"ab"), &patch(3, b"c")), None);
        assert_eq!(FieldPatch.partial_merge(KEY, &patch(3, b"c"), &patch(0, b"ab")), None);
        assert_eq!(FieldPatch.partial_merge(KEY, &patch(0, b"ab"), &patch(2, b"c")), Some(patch(0, b"abc")));
        assert_eq!(FieldPatch.partial_merge(KEY, &patch(2, b"xyz"), &patch(1, b"ab")), Some(patch(1, b"abyz")));
    }

    /// Every operator with operands that fit it, some malformed ones among them.
    fn operator_and_operands() -> impl Strategy<Value = (usize, Option<Vec<u8>>, Vec<Vec<u8>>)> {
        let counter = || prop_oneof![9 => any::<u64>().prop_map(number), 1 => vec(any::<u8>(), 0..10)];
        let bytes = || vec(any::<u8>(), 0..12);
        let patch = || (0u32..12, vec(any::<u8>(), 0..8)).prop_map(|(at, bytes)| FieldPatch::operand(at, &bytes));
        let patch = move || prop_oneof![9 => patch(), 1 => vec(any::<u8>(), 0..4)];
        // Up to three patches with gaps of any size between them, each up to four bytes.
        let patches = || {
            vec((0u32..5, vec(any::<u8>(), 1..5)), 0..4).prop_map(|gaps| {
                let (mut at, mut operand) = (0, Vec::new());
                for (gap, bytes) in gaps {
                    operand.extend(Patches::operand(at + gap, &bytes));
                    at += gap + bytes.len() as u32;
                }
                operand
            })
        };
        let patches = move || prop_oneof![9 => patches(), 1 => vec(any::<u8>(), 0..12)];
        prop_oneof![
            (Just(0), proptest::option::of(counter()), vec(counter(), 2..6)),
            (1usize..4, proptest::option::of(bytes()), vec(bytes(), 2..6)),
            (Just(4), proptest::option::of(bytes()), vec(patch(), 2..6)),
            (Just(5), proptest::option::of(bytes()), vec(patches(), 2..6)),
        ]
    }

    proptest! {
        #[test]
        fn merging_two_operands_first_changes_nothing(
            (which, base, operands) in operator_and_operands(),
            at in any::<prop::sample::Index>(),
        ) {
            let operator = &*builtin()[which];
            let at = at.index(operands.len() - 1);
            let all: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
            if let Some(joined) = operator.partial_merge(KEY, all[at], all[at + 1]) {
                let mut fewer = all.clone();
                fewer.splice(at..at + 2, [&joined[..]]);
                prop_assert_eq!(full(operator, base.as_deref(), &all), full(operator, base.as_deref(), &fewer));
            }
        }

        #[test]
        fn applying_operands_in_two_steps_changes_nothing(
            (which, base, operands) in operator_and_operands(),
            at in any::<prop::sample::Index>(),
        ) {
            let operator = &*builtin()[which];
            let at = 1 + at.index(operands.len() - 1);
            let all: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
            let stepwise = full(operator, base.as_deref(), &all[..at])
                .and_then(|value| full(operator, Some(&value), &all[at..]));
            prop_assert_eq!(full(operator, base.as_deref(), &all), stepwise);
        }

        #[test]
        fn well_formed_counters_always_combine(older in any::<u64>(), newer in any::<u64>()) {
            let joined = U64Add.partial_merge(KEY, &number(older), &number(newer));
            prop_assert_eq!(joined, Some(number(older.saturating_add(newer))));
        }
    }
}
