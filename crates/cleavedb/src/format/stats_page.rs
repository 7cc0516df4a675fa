//! The statistics page: one block of numbers in the file `STATS`. The process that has the database open overwrites it
//! about once a second, so that other processes can read it. A reader that finds a half-written page (the checksum does
//! not match) reads again. The engine itself never reads the page. Diagram: `docs/formats/stats.md`.

use super::checksum::{agrees, xxh3_64};
use crate::base::limits::BLOCK_IO_BYTES;

/// Size of the page, which is the whole file.
pub const PAGE_BYTES: usize = BLOCK_IO_BYTES;
/// The first bytes of the file.
pub const MAGIC: [u8; 8] = *b"CleaveSt";
/// The version this code writes.
pub const VERSION: u32 = 1;

const HEADER_BYTES: usize = 40;
const CHECKSUM_AT: usize = PAGE_BYTES - 8;
/// Highest number of figures on a page.
pub const NUMBERS_MAX: usize = (CHECKSUM_AT - HEADER_BYTES) / 8;

/// A decoded page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The process that has the database open.
    pub process: u32,
    /// Incremented by each write of the page.
    pub sequence: u64,
    /// Microseconds since the database was opened.
    pub uptime_us: u64,
    /// Figures by position; later versions append more. Do not reorder.
    pub numbers: Vec<u64>,
}

impl Page {
    /// The encoding; figures beyond [`NUMBERS_MAX`] are omitted.
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let numbers = &self.numbers[..self.numbers.len().min(NUMBERS_MAX)];
        let mut page = [0; PAGE_BYTES];
        page[..8].copy_from_slice(&MAGIC);
        page[8..12].copy_from_slice(&VERSION.to_le_bytes());
        page[12..16].copy_from_slice(&self.process.to_le_bytes());
        page[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        page[24..32].copy_from_slice(&self.uptime_us.to_le_bytes());
        page[32..40].copy_from_slice(&(numbers.len() as u64).to_le_bytes());
        for (place, number) in page[HEADER_BYTES..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        let checksum = xxh3_64(&page[..CHECKSUM_AT]);
        page[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        page
    }

    /// Decodes a page.
    ///
    /// # Errors
    /// A description of the damage. A page that is being written has a wrong checksum for a moment.
    pub fn decode(bytes: &[u8]) -> Result<Page, &'static str> {
        let page: &[u8; PAGE_BYTES] = bytes.try_into().map_err(|_| "the page does not have its size")?;
        if page[..8] != MAGIC {
            return Err("this is not a statistics page");
        }
        let long = |at: usize| u64::from_le_bytes(*page[at..].first_chunk().expect("the fields lie within the page"));
        let word = |at: usize| u32::from_le_bytes(*page[at..].first_chunk().expect("the fields lie within the page"));
        if word(8) != VERSION {
            return Err("the version of the page is unknown");
        }
        if !agrees(long(CHECKSUM_AT), xxh3_64(&page[..CHECKSUM_AT])) {
            return Err("the checksum of the page does not match");
        }
        let count = usize::try_from(long(32)).ok().filter(|&count| count <= NUMBERS_MAX);
        let count = count.ok_or("the page declares more figures than fit")?;
        let numbers = (0..count).map(|index| long(HEADER_BYTES + 8 * index)).collect();
        Ok(Page { process: word(12), sequence: long(16), uptime_us: long(24), numbers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(count: u64) -> Page {
        Page { process: 4711, sequence: 9, uptime_us: 1 << 40, numbers: (0..count).collect() }
    }

    #[test]
    fn pages_round_trip_and_figures_that_do_not_fit_are_omitted() {
        for count in [0, 1, 100, NUMBERS_MAX as u64] {
            assert_eq!(Page::decode(&page(count).encode()), Ok(page(count)));
        }
        let long = page(NUMBERS_MAX as u64 + 7);
        assert_eq!(Page::decode(&long.encode()), Ok(page(NUMBERS_MAX as u64)));
    }

    #[test]
    fn a_half_written_page_is_detected_wherever_it_is_torn() {
        let (before, after) = (page(200).encode(), Page { sequence: 10, ..page(201) }.encode());
        for border in 1..PAGE_BYTES {
            let torn: Vec<u8> = after[..border].iter().chain(&before[border..]).copied().collect();
            let whole = torn == before || torn == after;
            assert_eq!(Page::decode(&torn).is_ok(), whole, "torn at {border}");
        }
        assert!(Page::decode(&before[1..]).is_err() && Page::decode(&[]).is_err());
    }
}
