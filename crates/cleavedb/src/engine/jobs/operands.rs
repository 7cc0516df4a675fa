//! What is left of the operands of a key when its bucket is rewritten: per snapshot stripe, those that no newer base covers
//! (rule 7), merged as far as the operator can (rules 6 and 8).

use std::collections::BTreeSet;

use crate::base::key_versions::{KeyVersion, KeyVersions};
use crate::base::operator::join_neighbours;
use crate::base::{Kind, OperatorSource, Result, Seqno, Stamp, limits, split_key};
use crate::deltas::policy::OPERANDS_MAX;
use crate::engine::core::Core;
use crate::engine::layer::{Layer, collect_versions};
use crate::engine::snapshots::JobHorizon;
use crate::engine::view::View;
use crate::levels::point_reads::OneKey;

/// Compacts the operands of one key after the other.
pub(crate) struct Operands<'a> {
    core: &'a Core,
    pub horizon: &'a JobHorizon,
    /// The newest base on whose evidence an operand was dropped.
    pub evidence: Seqno,
    /// An operand that a newer base covers was kept for a snapshot.
    pub waits_for_snapshot: bool,
    /// Keys to be folded in their bucket, since their folds were refused, and those of them that were.
    refused: BTreeSet<Vec<u8>>,
    pub folded: Vec<Vec<u8>>,
}

/// What all other layers of a view hold of a key at or below `snapshot`.
fn outside_buckets(view: &View, key: &[u8], snapshot: Seqno) -> Result<KeyVersions> {
    let mut versions = KeyVersions::default();
    collect_versions(view.layers_beside_buckets(), key, snapshot, &mut OneKey::default(), &mut versions)?;
    Ok(versions)
}

impl<'a> Operands<'a> {
    pub fn new(core: &'a Core, horizon: &'a JobHorizon) -> Operands<'a> {
        let refused = core.upkeep.lock().refused();
        let (evidence, folded) = (Seqno::ZERO, Vec::new());
        Operands { core, horizon, evidence, waits_for_snapshot: false, refused, folded }
    }

    /// For the keys of a window, with their versions, the newest base in all other layers; 0 where that is older than all of these
    /// versions. What lies in tables is read for all of them together, and tables that have nothing newer are not read at all.
    pub fn bases_of(&self, window: &[(Vec<u8>, Vec<KeyVersion>)]) -> Vec<Result<Seqno>> {
        let (Some((first, _)), Some((last, _))) = (window.first(), window.last()) else { return Vec::new() };
        let versions = window.iter().flat_map(|(_, versions)| versions);
        let oldest = versions.map(|(stamp, _)| stamp.seqno()).min().unwrap_or_default();
        let layers = self.horizon.view.layers_beside_buckets().iter();
        let newer: Vec<Layer> = layers.filter(|layer| layer.newest_within(first, last) >= oldest).cloned().collect();
        let found = self.core.collect_many(&newer, window.iter().map(|(key, _)| &key[..]), Seqno::MAX);
        found.into_iter().map(|versions| versions.map(|versions| versions.base_seqno())).collect()
    }

    /// The versions of a key in its bucket that are left, newest first. `versions` are all of them, newest first, and `newest_base`
    /// is what [`bases_of`](Operands::bases_of) found.
    pub fn compact(&mut self, key: &[u8], versions: Vec<KeyVersion>, newest_base: Result<Seqno>) -> Vec<KeyVersion> {
        // A read of the key reports why. Without the base nothing can be merged.
        let Ok(newest_base) = newest_base else { return versions };
        let snapshots = &self.horizon.snapshots;
        let stripe = |version: &KeyVersion| snapshots.partition_point(|&snapshot| snapshot < version.0.seqno());
        let (mut kept, mut rest) = (Vec::new(), &versions[..]);
        for in_stripe in versions.chunk_by(|newer, older| stripe(newer) == stripe(older)) {
            // Everything in a bucket was published before its flush, so the last snapshot sees it.
            let snapshot = snapshots.get(stripe(&in_stripe[0])).or(snapshots.last());
            let snapshot = snapshot.copied().unwrap_or(Seqno::MAX);
            // The base that readers of the stripe see: an older one, if the newest is newer than they are.
            let base = match newest_base <= snapshot {
                true => Ok(newest_base),
                false => outside_buckets(&self.horizon.view, key, snapshot).map(|outside| outside.base_seqno()),
            };
            match base {
                Ok(base) => self.compact_stripe(key, in_stripe, rest, base, &mut kept),
                Err(_) => kept.extend(in_stripe.iter().cloned()),
            }
            rest = &rest[in_stripe.len()..];
        }
        self.waits_for_snapshot |= kept.last().is_some_and(|(oldest, _)| newest_base > oldest.seqno());
        kept
    }

    /// The versions of one stripe that are left; `base` is the newest base in other layers that its readers see, and
    /// `with_older` goes on with the versions of older stripes.
    fn compact_stripe(
        &mut self,
        key: &[u8],
        versions: &[KeyVersion],
        with_older: &[KeyVersion],
        base: Seqno,
        kept: &mut Vec<KeyVersion>,
    ) {
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
            Some(operator) if deltas.len() > 1 => {
                let user_key = split_key(key).map_or(key, |(_, key)| key);
                let mut merged = join_neighbours(&**operator, user_key, deltas.iter().rev().cloned());
                merged.reverse();
                merged
            }
            _ => deltas.to_vec(),
        };
        let is_refused = !deltas.is_empty() && self.refused.contains(key);
        if operator.is_some()
            && (merged.len() > OPERANDS_MAX || is_refused || bases_at.is_some() && !deltas.is_empty())
            && !live.is_empty()
            && let Some(folded) = self.fold(key, with_older)
        {
            kept.push(folded);
            self.folded.extend(is_refused.then(|| key.to_vec()));
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
