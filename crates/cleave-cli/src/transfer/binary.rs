//! Records in the binary format of docs/formats/export.md: a magic number, then for each record two lengths and the bytes,
//! up to the end of the file. Used by import, ingest and export.

use std::io::{self, BufRead, Read, Write};

use super::record::{Record, check_limits};

/// The magic number: a byte that starts no text, the name, and the version of the format (1).
pub const MAGIC: [u8; 8] = *b"\x89CLEAVE\x01";

/// Reads records sequentially.
pub struct Reader<R> {
    source: R,
    offset: u64,
    /// Offset of the last record.
    start: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads from `source` after checking its magic number.
    ///
    /// # Errors
    /// A sentence, if the magic number is missing.
    pub fn new(source: R) -> Result<Reader<R>, String> {
        let mut reader = Reader { source, offset: 0, start: 0 };
        let magic = reader.take(MAGIC.len(), "the magic number")?;
        if magic != MAGIC {
            return Err("offset 0: not an export in binary format, or of an unknown version".to_owned());
        }
        Ok(reader)
    }

    /// The next record, `None` at the end.
    ///
    /// # Errors
    /// A sentence that names the offset.
    pub fn next(&mut self) -> Result<Option<Record>, String> {
        let rest = self.source.fill_buf().map_err(|error| format!("offset {}: cannot read: {error}", self.offset))?;
        if rest.is_empty() {
            return Ok(None);
        }
        self.start = self.offset;
        let lengths = self.take(8, "a record's lengths")?;
        let length =
            |at: usize| u32::from_le_bytes([lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]]) as usize;
        let (key_len, value_len) = (length(0), length(4));
        check_limits(key_len, value_len).map_err(|error| format!("{}: {error}", self.place()))?;
        Ok(Some((self.take(key_len, "a key")?, self.take(value_len, "a value")?)))
    }

    /// The position of the last record.
    pub fn place(&self) -> String {
        format!("offset {}", self.start)
    }

    /// Reads `len` bytes. Memory grows with the bytes present in the file, not with a damaged length.
    fn take(&mut self, len: usize, what: &str) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let read = self.source.by_ref().take(len as u64).read_to_end(&mut bytes);
        let read = read.map_err(|error| format!("offset {}: cannot read: {error}", self.offset))?;
        if read < len {
            let end = self.offset + read as u64;
            return Err(format!("offset {}: the file ends at {end}, in the middle of {what}", self.offset));
        }
        self.offset += len as u64;
        Ok(bytes)
    }
}

/// Writes one record.
pub fn write(out: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    for bytes in [key, value] {
        let len = u32::try_from(bytes.len()).expect("the limits of keys and values fit 32 bits");
        out.write_all(&len.to_le_bytes())?;
    }
    out.write_all(key)?;
    out.write_all(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        write(&mut file, b"key", b"value").unwrap();
        write(&mut file, b"\xff", b"").unwrap();
        file
    }

    #[test]
    fn records_round_trip() {
        let file = sample();
        let mut reader = Reader::new(&file[..]).unwrap();
        assert_eq!(reader.next().unwrap(), Some((b"key".to_vec(), b"value".to_vec())));
        assert_eq!(reader.next().unwrap(), Some((b"\xff".to_vec(), vec![])));
        assert_eq!(reader.next().unwrap(), None);
    }

    #[test]
    fn a_file_cut_anywhere_but_between_records_is_an_error_naming_an_offset() {
        let file = sample();
        for cut in 0..file.len() {
            let read_all = || -> Result<usize, String> {
                let mut reader = Reader::new(&file[..cut])?;
                let mut count = 0;
                while reader.next()?.is_some() {
                    count += 1;
                }
                Ok(count)
            };
            match cut {
                8 => assert_eq!(read_all(), Ok(0)),
                24 => assert_eq!(read_all(), Ok(1)),
                _ => assert!(read_all().unwrap_err().starts_with("offset "), "cut at {cut}"),
            }
        }
    }

    #[test]
    fn lengths_over_the_limits_are_refused_before_the_bytes_are_read() {
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(&3u32.to_le_bytes());
        file.extend_from_slice(&u32::MAX.to_le_bytes());
        let error = Reader::new(&file[..]).unwrap().next().unwrap_err();
        assert!(error.starts_with("offset 8: ") && error.contains("4294967295"), "{error}");
    }

    #[test]
    fn another_version_is_refused() {
        let mut file = sample();
        file[7] = 2;
        assert!(Reader::new(&file[..]).is_err());
    }
}
