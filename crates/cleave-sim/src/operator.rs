//! A second, naive implementation of the built-in merge operators, written from their documentation, so that the model
//! does not share a bug with the engine; and one operator that only the simulation has. Operands are applied one at a time and never combined.

use cleavedb::MergeOperator;

use crate::material::Value;
use crate::rng::Rng;

/// A merge operator without partial merge, whose operands do not commute: each goes before or after the value, as its length is
/// odd or even. Operands are never combined without a base.
pub struct Chain;

impl MergeOperator for Chain {
    fn name(&self) -> &str {
        Operator::Chain.name()
    }

    fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        let (front, back): (Vec<&[u8]>, Vec<&[u8]>) = operands.iter().partition(|operand| operand.len() % 2 == 1);
        let parts = front.into_iter().rev().chain(base).chain(back);
        Ok(parts.flatten().copied().collect())
    }

    fn partial_merge(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// A merge operator of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Adds 8-byte little-endian counters, saturating at the maximum.
    U64Add,
    /// Joins with a comma.
    Append,
    /// Puts operands before or after the value; not built in, and without partial merge.
    Chain,
    /// Keeps the greatest bytes.
    Max,
    /// Keeps the least bytes.
    Min,
    /// Overwrites bytes at an offset (u32, little-endian, before the bytes).
    FieldPatch,
    /// Overwrites bytes at several ascending offsets (u32 offset and u32 length, little-endian, before the bytes of each).
    Patches,
}

impl Operator {
    /// All of them.
    pub const ALL: [Operator; 7] = [
        Operator::U64Add,
        Operator::Append,
        Operator::Chain,
        Operator::Max,
        Operator::FieldPatch,
        Operator::Patches,
        Operator::Min,
    ];

    /// The name under which the engine registers it.
    pub fn name(self) -> &'static str {
        match self {
            Operator::U64Add => "u64-add",
            Operator::Append => "append",
            Operator::Chain => "chain",
            Operator::Max => "max",
            Operator::Min => "min",
            Operator::FieldPatch => "field-patch",
            Operator::Patches => "patches",
        }
    }

    /// The value after one operand.
    pub fn apply(self, base: Option<Vec<u8>>, operand: &[u8]) -> Vec<u8> {
        match (self, base) {
            (Operator::U64Add, base) => {
                let sum = base.map_or(0, |base| counter(&base)).saturating_add(counter(operand));
                sum.to_le_bytes().to_vec()
            }
            (Operator::FieldPatch, base) => {
                let mut value = base.unwrap_or_default();
                overwrite(&mut value, number(operand), &operand[4..]);
                value
            }
            (Operator::Patches, base) => {
                let (mut value, mut rest) = (base.unwrap_or_default(), operand);
                while !rest.is_empty() {
                    let end = 8 + number(&rest[4..]);
                    overwrite(&mut value, number(rest), &rest[8..end]);
                    rest = &rest[end..];
                }
                value
            }
            (_, None) => operand.to_vec(),
            (Operator::Append, Some(mut value)) => {
                value.push(b',');
                value.extend_from_slice(operand);
                value
            }
            (Operator::Chain, Some(value)) => match operand.len() % 2 {
                1 => [operand, &value].concat(),
                _ => [&value, operand].concat(),
            },
            (Operator::Max, Some(value)) => value.max(operand.to_vec()),
            (Operator::Min, Some(value)) => value.min(operand.to_vec()),
        }
    }

    /// Turns a drawn value into one that a put may write under this operator.
    pub fn value(self, value: Value) -> Vec<u8> {
        match self {
            Operator::U64Add => u64::from(value.seed).to_le_bytes().to_vec(),
            _ => value.bytes(),
        }
    }

    /// Turns a drawn value into an operand that fits this operator.
    pub fn operand(self, value: Value) -> Vec<u8> {
        let mut rng = Rng::of(u64::from(value.seed), 0x6f70);
        match self {
            Operator::U64Add if rng.one_in(20) => (u64::MAX - rng.below(100)).to_le_bytes().to_vec(),
            Operator::U64Add => rng.below(1000).to_le_bytes().to_vec(),
            Operator::FieldPatch => {
                let mut operand = (rng.below(300) as u32).to_le_bytes().to_vec();
                operand.extend(Value { len: value.len % 250, ..value }.bytes());
                operand
            }
            Operator::Patches => {
                let (mut operand, mut at) = (Vec::new(), 0);
                for _ in 0..rng.between(1, 3) {
                    at += rng.below(120) as u32;
                    let bytes = Value { len: 1 + value.len % 100, ..value }.bytes();
                    operand.extend([at, bytes.len() as u32].iter().flat_map(|number| number.to_le_bytes()));
                    operand.extend(&bytes);
                    at += bytes.len() as u32;
                }
                operand
            }
            Operator::Append | Operator::Chain => Value { len: value.len % 210, ..value }.bytes(),
            Operator::Max | Operator::Min => value.bytes(),
        }
    }
}

/// The little-endian number in the first four bytes.
fn number(bytes: &[u8]) -> usize {
    bytes[..4].iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// Writes bytes over those of a value, which grows with zeros if it is too short.
fn overwrite(value: &mut Vec<u8>, start: usize, bytes: &[u8]) {
    for (position, &byte) in bytes.iter().enumerate() {
        if value.len() <= start + position {
            value.resize(start + position + 1, 0);
        }
        value[start + position] = byte;
    }
    if value.len() < start {
        value.resize(start, 0);
    }
}

fn counter(bytes: &[u8]) -> u64 {
    bytes.try_into().map(u64::from_le_bytes).expect("the workload writes counters of 8 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine's operators, applied in one call, agree with the naive ones on everything the workload draws.
    #[test]
    fn the_naive_operators_agree_with_the_engine() {
        let mut engine = cleavedb::operators::builtin();
        engine.push(std::sync::Arc::new(Chain));
        let mut rng = Rng::new(11);
        for round in 0..2000 {
            let operator = Operator::ALL[round % Operator::ALL.len()];
            let base = (!rng.one_in(3)).then(|| operator.value(Value::draw(&mut rng)));
            let operands: Vec<_> = (0..rng.between(1, 5)).map(|_| operator.operand(Value::draw(&mut rng))).collect();
            let naive = operands.iter().fold(base.clone(), |base, operand| Some(operator.apply(base, operand)));
            let theirs = engine.iter().find(|theirs| theirs.name() == operator.name()).unwrap();
            let operands: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
            assert_eq!(theirs.full_merge(b"key", base.as_deref(), &operands).ok(), naive, "{operator:?}");
        }
    }
}
