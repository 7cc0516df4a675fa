//! What is left of the operands of a key when its bucket is rewritten: per snapshot stripe, those that no newer base covers
//! (rule 7), merged as far as the operator can (rules 6 and 8).

use crate::base::key_versions::{KeyVersion, KeyVersions};
use crate::base::operator::join_neighbours;
use crate::base::{Kind, OperatorSource, Result, Seqno, Stamp, limits, split_key};
use crate::deltas::policy::OPERANDS_MAX;
use crate::engine::core::Core;
use crate::engine::layer::collect_versions;
use crate::engine::snapshots::JobHorizon;
use crate::engine::view::View;
use crate::levels::point_reads::OneKey;

/// Compacts the operands of one key after the other.
pub(crate) struct Operands<'a> {
    core: &'a Core,
    pub horizon: &'a JobHorizon,
    /// Looks for a covering base of every key, also if it has a single operand.
    is_thorough: bool,
    /// The newest base on whose evidence an operand was dropped.
    pub evidence: Seqno,
    /// An operand that a newer base covers was kept for a snapshot. Known only if the look is thorough.
    pub waits_for_snapshot: bool,
}

/// What all other layers of a view hold of a key at or below `snapshot`.
pub(crate) fn outside_buckets(view: &View, key: &[u8], snapshot: Seqno) -> Result<KeyVersions> {
    let mut versions = KeyVersions::default();
    collect_versions(view.layers_beside_buckets(), key, snapshot, &mut OneKey::default(), &mut versions)?;
    Ok(versions)
}

impl<'a> Operands<'a> {
    pub fn new(core: &'a Core, horizon: &'a JobHorizon, is_thorough: bool) -> Operands<'a> {
        Operands { core, horizon, is_thorough, evidence: Seqno::ZERO, waits_for_snapshot: false }
    }

    /// The versions of a key in its bucket that are left, newest first. `versions` are all of them, newest first.
    pub fn compact(&mut self, key: &[u8], versions: Vec<KeyVersion>) -> Vec<KeyVersion> {
        if versions.len() < 2 && !self.is_thorough {
            return versions;
        }
        let snapshots = &self.horizon.snapshots;
        let stripe = |version: &KeyVersion| snapshots.partition_point(|&snapshot| snapshot < version.0.seqno());
        let (mut kept, mut rest) = (Vec::new(), &versions[..]);
        for in_stripe in versions.chunk_by(|newer, older| stripe(newer) == stripe(older)) {
            // Everything in a bucket was published before its flush, so the last snapshot sees it.
            let snapshot = snapshots.get(stripe(&in_stripe[0])).or(snapshots.last());
            let snapshot = snapshot.copied().unwrap_or(Seqno::MAX);
            self.compact_stripe(key, in_stripe, rest, snapshot, &mut kept);
            rest = &rest[in_stripe.len()..];
        }
        if let Some((oldest, _)) = kept.last().filter(|_| self.is_thorough) {
            let covered = outside_buckets(&self.horizon.view, key, Seqno::MAX);
            self.waits_for_snapshot |= covered.is_ok_and(|outside| outside.base_seqno() > oldest.seqno());
        }
        kept
    }

    /// The versions of one stripe that are left; `snapshot` is the oldest that sees them all, and `with_older` goes on with the
    /// versions of older stripes.
    fn compact_stripe(
        &mut self,
        key: &[u8],
        versions: &[KeyVersion],
        with_older: &[KeyVersion],
        snapshot: Seqno,
        kept: &mut Vec<KeyVersion>,
    ) {
        let Ok(outside) = outside_buckets(&self.horizon.view, key, snapshot) else {
            // A read of the key reports why. Without the base nothing can be merged.
            kept.extend(versions.iter().cloned());
            return;
        };
        let base = outside.base_seqno();
        let live = versions.partition_point(|(stamp, _)| stamp.seqno() > base);
        if live < versions.len() {
            self.evidence = self.evidence.max(base);
        }
        let live = &versions[..live];
        // A base in the bucket covers what is older, and takes part in the merge.
        let is_base = |(stamp, _): &KeyVersion| stamp.kind().is_some_and(Kind::is_base);
        let bases_at = live.iter().position(is_base);
        let (deltas, own_base) = live.split_at(bases_at.unwrap_or(live.len()));
        let operator = split_key(key).and_then(|(keyspace, _)| self.core.keyspaces.operator(keyspace));
        let merged = match &operator {
            Some(operator) => {
                let mut merged = join_neighbours(
                    &**operator,
                    split_key(key).map_or(key, |(_, key)| key),
                    deltas.iter().rev().cloned(),
                );
                merged.reverse();
                merged
            }
            None => deltas.to_vec(),
        };
        if operator.is_some()
            && (merged.len() > OPERANDS_MAX || bases_at.is_some() && !deltas.is_empty())
            && !live.is_empty()
            && let Some(folded) = self.fold(key, with_older)
        {
            kept.push(folded);
            return;
        }
        kept.extend(merged);
        kept.extend(own_base.first().cloned());
    }

    /// The value of a key after the newest of these versions, which are all up to there in its bucket, as a put with the number of
    /// that one: for keys whose operands cannot be combined, or whose base is in the bucket. `None` if the value cannot be read
    /// or merged now.
    fn fold(&self, key: &[u8], versions_in_bucket: &[KeyVersion]) -> Option<KeyVersion> {
        let newest = versions_in_bucket.first()?.0.seqno();
        let view = &self.horizon.view;
        let mut versions = outside_buckets(view, key, newest).ok()?;
        versions.join(KeyVersions::of(versions_in_bucket));
        let keyspace = self.core.keyspaces.with_id(split_key(key)?.0)?;
        let value = self.core.value_of(view, &keyspace, key, &versions, None).ok()??;
        (value.len() < limits::VALUE_BYTES_LIMIT).then(|| (Stamp::new(newest, Kind::Put), value))
    }
}
