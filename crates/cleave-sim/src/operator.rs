//! A second, naive implementation of the built-in merge operators, written from their documentation, so that the model
//! does not share a bug with the engine. Operands are applied one at a time and never combined.

use crate::material::Value;
use crate::rng::Rng;

/// A merge operator of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// Adds 8-byte little-endian counters, saturating at the maximum.
    U64Add,
    /// Joins with a comma.
    Append,
    /// Keeps the greatest bytes.
    Max,
    /// Keeps the least bytes.
    Min,
    /// Overwrites bytes at an offset (u32, little-endian, before the bytes).
    FieldPatch,
}

impl Operator {
    /// All of them.
    pub const ALL: [Operator; 5] =
        [Operator::U64Add, Operator::Append, Operator::Max, Operator::Min, Operator::FieldPatch];

    /// The name under which the engine registers it.
    pub fn name(self) -> &'static str {
        match self {
            Operator::U64Add => "u64-add",
            Operator::Append => "append",
            Operator::Max => "max",
            Operator::Min => "min",
            Operator::FieldPatch => "field-patch",
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
                let start = operand[..4].iter().rev().fold(0, |offset, &byte| offset << 8 | usize::from(byte));
                for (position, &byte) in operand[4..].iter().enumerate() {
                    if value.len() <= start + position {
                        value.resize(start + position + 1, 0);
                    }
                    value[start + position] = byte;
                }
                if value.len() < start {
                    value.resize(start, 0);
                }
                value
            }
            (_, None) => operand.to_vec(),
            (Operator::Append, Some(mut value)) => {
                value.push(b',');
                value.extend_from_slice(operand);
                value
            }
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
            Operator::Append => Value { len: value.len % 210, ..value }.bytes(),
            Operator::Max | Operator::Min => value.bytes(),
        }
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
        let engine = cleavedb::operators::builtin();
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
