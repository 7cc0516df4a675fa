//! The versions of one key that a reader needs: the merge operands, and the base (a put or a delete) below them. Layers are
//! asked from the newest to the oldest and add what they hold; once a base or a covering range tombstone is found, no
//! older layer can change the value (rule 1), and the versions are [settled](KeyVersions::is_settled).
//!
//! Filled by the layers of a view (`engine/layer.rs`) and by scans; merged into a value by `engine/read/get.rs`.

use super::address::{Address, FileId};
use super::kind::{Kind, Seqno, Stamp};
use super::slice::Slice;

/// A version of a key: a value, an operand, or the address of either, as the kind of the stamp says.
pub type KeyVersion = (Stamp, Slice);

/// What a reader has found of one key.
#[derive(Default)]
pub struct KeyVersions {
    /// Newest first.
    deltas: Vec<KeyVersion>,
    base: Option<KeyVersion>,
    /// The newest range tombstone that covers the key: a base in its place; 0 if there is none.
    cover: Seqno,
    base_table: Option<FileId>,
    /// The value of the key at a sequence number, which is known: a base in place of the operand with this number.
    known: Option<(Seqno, Slice)>,
}

impl KeyVersions {
    /// None yet, of a key whose value at `seqno` is known. Once the operand with this number is met, no older version is needed.
    pub fn down_to(seqno: Seqno, value: Slice) -> KeyVersions {
        KeyVersions { known: Some((seqno, value)), ..KeyVersions::default() }
    }

    /// Takes the newest range tombstone that covers the key in the layer that comes next, 0 if there is none. Every older
    /// layer holds only what it deletes (rule 1), so the value is settled once this layer has been asked.
    #[inline]
    pub fn cover(&mut self, seqno: Seqno) {
        self.cover = self.cover.max(seqno);
    }

    /// Takes the next older version. False once a base was taken or a deleted version was met: older ones are not needed.
    pub fn push_older(&mut self, stamp: Stamp, payload: Slice) -> bool {
        if stamp.seqno() < self.cover {
            return false;
        }
        if stamp.kind().is_some_and(Kind::is_base) {
            self.base = Some((stamp, payload));
            return false;
        }
        if let Some(known) = self.known_at(stamp) {
            self.base = Some(known);
            return false;
        }
        self.deltas.push((stamp, payload));
        true
    }

    /// The base in place of this operand, if the value of the key there is known.
    fn known_at(&self, stamp: Stamp) -> Option<KeyVersion> {
        let known = self.known.as_ref().filter(|(seqno, _)| *seqno == stamp.seqno());
        known.map(|(seqno, value)| (Stamp::new(*seqno, Kind::Put), value.clone()))
    }

    /// The base is the value that was known from the beginning.
    pub fn met_known(&self) -> bool {
        self.known
            .as_ref()
            .is_some_and(|(seqno, _)| self.base.as_ref().is_some_and(|(stamp, _)| stamp.seqno() == *seqno))
    }

    /// Takes the next newer version: a base replaces all older ones. The caller then
    /// [reverses the deltas](KeyVersions::reverse_deltas).
    pub fn push_newer(&mut self, stamp: Stamp, payload: Slice) {
        if stamp.seqno() < self.cover {
            return;
        }
        if stamp.kind().is_some_and(Kind::is_base) {
            self.deltas.clear();
            self.base = Some((stamp, payload));
        } else {
            self.deltas.push((stamp, payload));
        }
    }

    /// Puts deltas that came oldest first into the order that merging expects.
    pub fn reverse_deltas(&mut self) {
        self.deltas.reverse();
    }

    /// Takes what another store holds of the key, whatever its age: of the bases the newer one counts, and the deltas above
    /// it, newest first.
    pub fn join(&mut self, other: KeyVersions) {
        self.cover = self.cover.max(other.cover);
        if let Some(base) = other.base.filter(|(stamp, _)| stamp.seqno() > self.base_seqno()) {
            (self.base, self.base_table) = (Some(base), other.base_table);
        }
        let base = self.base_seqno();
        match self.deltas.is_empty() {
            true => self.deltas = other.deltas,
            false => self.deltas.extend(other.deltas),
        }
        self.deltas.retain(|(stamp, _)| stamp.seqno() > base);
        self.deltas.sort_by_key(|(stamp, _)| std::cmp::Reverse(*stamp));
        let known = self.deltas.iter().enumerate().find_map(|(at, (stamp, _))| Some((at, self.known_at(*stamp)?)));
        if let Some((at, known)) = known {
            self.deltas.truncate(at);
            (self.base, self.base_table) = (Some(known), None);
        }
    }

    /// The versions that a reader of `versions`, newest first, needs.
    pub fn of(versions: &[KeyVersion]) -> KeyVersions {
        let mut all = KeyVersions::default();
        let mut wanted = true;
        for (stamp, payload) in versions {
            wanted = wanted && all.push_older(*stamp, payload.clone());
        }
        all
    }

    /// Forgets everything, for the next key.
    pub fn clear(&mut self) {
        self.restart();
        self.known = None;
    }

    /// Forgets what was found, for another search for the same key.
    pub fn restart(&mut self) {
        self.deltas.clear();
        self.base = None;
        self.cover = Seqno::ZERO;
        self.base_table = None;
    }

    /// Older layers hold nothing that the value depends on.
    #[inline]
    pub fn is_settled(&self) -> bool {
        self.base.is_some() || self.cover > Seqno::ZERO
    }

    /// The put or delete below the operands.
    pub fn base(&self) -> Option<&KeyVersion> {
        self.base.as_ref()
    }

    /// The operands, newest first.
    pub fn deltas(&self) -> &[KeyVersion] {
        &self.deltas
    }

    /// The sequence number of the newest base or covering range tombstone; 0 if there is neither.
    pub fn base_seqno(&self) -> Seqno {
        self.base.as_ref().map_or(self.cover, |(stamp, _)| self.cover.max(stamp.seqno()))
    }

    /// The key has a value: a put, or an operand, which every operator makes a value of.
    pub fn has_value(&self) -> bool {
        !self.deltas.is_empty() || self.base.as_ref().is_some_and(|(stamp, _)| !is_delete(*stamp))
    }

    /// The newest version of the key in `table` has this stamp. Remembered if that is the base.
    pub fn note_newest_in(&mut self, table: FileId, newest: Stamp) {
        if self.base.as_ref().is_some_and(|(stamp, _)| *stamp == newest) {
            self.base_table = Some(table);
        }
    }

    /// The table in which the base is the newest version of the key, if it was found in one.
    pub fn base_table(&self) -> Option<FileId> {
        self.base_table
    }

    /// Some payload is an address.
    pub fn is_separated(&self) -> bool {
        self.base.iter().chain(&self.deltas).any(is_separated)
    }

    /// The versions whose payloads are addresses, to be replaced by [`set_payload`] if they are fetched early.
    pub fn separated(&mut self) -> impl Iterator<Item = &mut KeyVersion> {
        self.base.iter_mut().chain(&mut self.deltas).filter(|version| is_separated(version))
    }

    /// Bytes that the payloads take once they are fetched.
    pub fn bytes(&self) -> usize {
        let bytes = |version: &KeyVersion| match Address::decode(&version.1).filter(|_| is_separated(version)) {
            Some(address) => address.bytes_max() as usize,
            None => version.1.len(),
        };
        self.base.iter().chain(&self.deltas).map(bytes).sum()
    }

    /// Where the base lies, if it is separated.
    pub fn base_address(&self) -> Option<Address> {
        self.base.as_ref().filter(|base| is_separated(base)).and_then(|(_, payload)| Address::decode(payload))
    }
}

fn is_separated(version: &KeyVersion) -> bool {
    version.0.kind().is_some_and(Kind::is_address)
}

/// Replaces the address of a version by the payload that was fetched from there.
pub fn set_payload(version: &mut KeyVersion, payload: Slice) {
    *version = (inline(version.0), payload);
}

/// The stamp of the same version with its payload in place of an address.
pub fn inline(stamp: Stamp) -> Stamp {
    Stamp::new(stamp.seqno(), stamp.kind().map_or(Kind::Put, Kind::inline))
}

/// The version deletes the key.
pub fn is_delete(stamp: Stamp) -> bool {
    matches!(stamp.kind(), Some(Kind::Delete | Kind::DeleteRange))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(seqno: u64, kind: Kind) -> Stamp {
        Stamp::new(Seqno(seqno), kind)
    }

    #[test]
    fn a_key_has_a_value_unless_its_base_is_a_delete_of_either_kind() {
        let has_value = |kind| {
            let mut versions = KeyVersions::default();
            versions.push_older(stamp(3, kind), Slice::default());
            versions.has_value()
        };
        let all = [Kind::Put, Kind::PutAt, Kind::Delta, Kind::DeltaAt, Kind::Delete, Kind::DeleteRange];
        assert_eq!(all.map(has_value), [true, true, true, true, false, false]);
    }

    #[test]
    fn a_value_that_is_known_is_the_base_in_place_of_the_operand_with_its_number() {
        let known = || KeyVersions::down_to(Seqno(5), Slice::copy_from(b"known"));
        let push = |versions: &mut KeyVersions, seqno, kind| versions.push_older(stamp(seqno, kind), Slice::default());
        let mut versions = known();
        for _ in 0..2 {
            versions.restart();
            assert!(!versions.met_known() && push(&mut versions, 7, Kind::Delta));
            assert!(!push(&mut versions, 5, Kind::Delta) && versions.is_settled() && versions.met_known());
            assert_eq!((versions.deltas().len(), &*versions.base().unwrap().1), (1, &b"known"[..]));
        }
        // Combined with a newer one, it is not met.
        let mut versions = known();
        assert!(push(&mut versions, 7, Kind::DeltaAt) && push(&mut versions, 4, Kind::Delta));
        assert!(!push(&mut versions, 3, Kind::Put) && versions.base_seqno() == Seqno(3) && !versions.met_known());
        // A newer base, and a newer tombstone.
        let mut versions = known();
        assert!(!push(&mut versions, 6, Kind::Delete) && versions.base_seqno() == Seqno(6));
        let mut versions = known();
        versions.cover(Seqno(6));
        assert!(!push(&mut versions, 5, Kind::Delta) && versions.base().is_none());
        // In the other store.
        let with = |seqnos: &[u64], last| {
            let mut all = KeyVersions::default();
            seqnos.iter().for_each(|seqno| assert!(push(&mut all, *seqno, Kind::Delta)));
            push(&mut all, last, Kind::Put);
            all
        };
        let mut versions = known();
        assert!(push(&mut versions, 7, Kind::Delta) && push(&mut versions, 4, Kind::Delta));
        versions.join(with(&[6, 5, 3], 2));
        assert_eq!((versions.deltas().len(), versions.base_seqno(), versions.met_known()), (2, Seqno(5), true));
        let mut versions = known();
        assert!(!push(&mut versions, 6, Kind::Put));
        versions.join(with(&[7, 5], 2));
        assert_eq!((versions.deltas().len(), versions.base_seqno(), versions.met_known()), (1, Seqno(6), false));
    }

    #[test]
    fn versions_of_two_stores_join_in_the_order_of_their_numbers() {
        let with = |versions: &[(u64, Kind)]| {
            let mut all = KeyVersions::default();
            for (seqno, kind) in versions {
                all.push_older(stamp(*seqno, *kind), Slice::default());
            }
            all
        };
        let joined = |one: &[(u64, Kind)], other: &[(u64, Kind)], cover: u64| {
            let mut all = with(one);
            all.cover(Seqno(cover));
            all.join(with(other));
            let deltas: Vec<u64> = all.deltas().iter().map(|(stamp, _)| stamp.seqno().0).collect();
            (deltas, all.base_seqno().0)
        };
        use Kind::{Delete, Delta, Put};
        assert_eq!(joined(&[(9, Delta), (5, Put)], &[(8, Delta), (6, Delta), (4, Delta)], 0), (vec![9, 8, 6], 5));
        assert_eq!(joined(&[(9, Delta), (5, Delete)], &[(4, Delta)], 0), (vec![9], 5));
        assert_eq!(joined(&[(9, Delta)], &[(8, Delta), (6, Delta)], 7), (vec![9, 8], 7));
        assert_eq!(joined(&[(9, Delta), (6, Delta), (5, Put)], &[(8, Put)], 0), (vec![9], 8));
        assert_eq!(joined(&[(9, Delta), (6, Put)], &[(8, Delta), (5, Put)], 0), (vec![9, 8], 6));
    }

    #[test]
    fn a_base_or_a_covering_tombstone_settles_a_key_and_operands_do_not() {
        let mut versions = KeyVersions::default();
        assert!(versions.push_older(stamp(9, Kind::Delta), Slice::default()) && !versions.is_settled());
        versions.cover(Seqno(5));
        assert!(versions.is_settled() && versions.push_older(stamp(6, Kind::Delta), Slice::default()));
        assert!(!versions.push_older(stamp(4, Kind::Put), Slice::default()), "the tombstone deletes it");
        assert_eq!((versions.deltas().len(), versions.base().is_none(), versions.base_seqno()), (2, true, Seqno(5)));
        versions.clear();
        assert!(!versions.push_older(stamp(4, Kind::Put), Slice::default()) && versions.is_settled());
        assert_eq!(versions.base_seqno(), Seqno(4));
    }
}
