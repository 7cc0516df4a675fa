//! The page that the owner of an open database keeps in the file `STATS`: one block, written in place about once a second,
//! for others to look at. This is its frame: magic, version, length and checksum around a body in CBOR, which
//! `engine/inspect/stats_page.rs` makes of the figures. A reader may meet it half-written: then the checksum is wrong, and it reads
//! again. Nothing depends on it. Diagram: `docs/formats/stats.md`.

use super::checksum::{agrees, xxh3_64};
use crate::base::limits::BLOCK_IO_BYTES;

/// Size of the page, which is the whole file.
pub const PAGE_BYTES: usize = BLOCK_IO_BYTES;
/// The first bytes of the file.
pub const MAGIC: [u8; 8] = *b"CleaveSt";
/// The version this code writes. Version 1 was a list of numbers.
pub const VERSION: u32 = 2;

/// Where the body begins.
pub const HEADER_BYTES: usize = 16;
const CHECKSUM_AT: usize = PAGE_BYTES - 8;

/// The page around a body; `None` if it does not fit.
pub fn seal(body: &[u8]) -> Option<[u8; PAGE_BYTES]> {
    let mut page = [0; PAGE_BYTES];
    page[..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&(body.len() as u32).to_le_bytes());
    page[HEADER_BYTES..CHECKSUM_AT].get_mut(..body.len())?.copy_from_slice(body);
    let checksum = xxh3_64(&page[..CHECKSUM_AT]);
    page[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    Some(page)
}

/// The body of a page.
///
/// # Errors
/// What is wrong. A page that is being written has a wrong checksum for a moment.
pub fn open(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let page: &[u8; PAGE_BYTES] = bytes.try_into().map_err(|_| "the page does not have its size")?;
    if page[..8] != MAGIC {
        return Err("this is no page of statistics");
    }
    let word = |at: usize| u32::from_le_bytes(*page[at..].first_chunk().expect("the fields lie within the page"));
    if word(8) != VERSION {
        return Err("the page is of a version that is not known");
    }
    let stored = u64::from_le_bytes(*page[CHECKSUM_AT..].first_chunk().expect("the checksum ends the page"));
    if !agrees(stored, xxh3_64(&page[..CHECKSUM_AT])) {
        return Err("the checksum of the page does not match");
    }
    let len = usize::try_from(word(12)).unwrap_or(usize::MAX);
    page[HEADER_BYTES..CHECKSUM_AT].get(..len).ok_or("the page claims to hold more than fits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_round_trip_and_what_does_not_fit_is_refused() {
        let len_max = CHECKSUM_AT - HEADER_BYTES;
        for len in [0, 1, 100, len_max] {
            let body: Vec<u8> = (0..len).map(|at| at as u8).collect();
            assert_eq!(open(&seal(&body).unwrap()), Ok(&body[..]));
        }
        assert!(seal(&vec![0; len_max + 1]).is_none());
    }

    #[test]
    fn a_half_written_page_is_noticed_at_every_border() {
        let (before, after) = (seal(&[7; 200]).unwrap(), seal(&[8; 201]).unwrap());
        for border in 1..PAGE_BYTES {
            let torn: Vec<u8> = after[..border].iter().chain(&before[border..]).copied().collect();
            let whole = torn == before || torn == after;
            assert_eq!(open(&torn).is_ok(), whole, "torn at {border}");
        }
        assert!(open(&before[1..]).is_err() && open(&[]).is_err());
    }

    #[test]
    fn a_page_of_another_version_is_refused() {
        let mut page = seal(b"body").unwrap();
        page[8] = 1;
        let checksum = xxh3_64(&page[..CHECKSUM_AT]);
        page[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(open(&page), Err("the page is of a version that is not known"));
    }
}
