//! The formats of keys and values on the command line (text, hexadecimal, base64, number) and of files of records. Used by
//! the flags, by every command that prints records, and by import and export.

use std::fmt::Write;

use clap::ValueEnum;
use data_encoding::{BASE64, HEXLOWER, HEXLOWER_PERMISSIVE};

/// A format of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// The bytes as they are
    Text,
    /// Two hexadecimal digits per byte
    Hex,
    /// Base64 with padding
    Base64,
    /// A decimal number, stored in 8 bytes, little-endian
    U64,
}

/// The form of a file of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileForm {
    /// One JSON object per line, with base64 for bytes that are not UTF-8
    Jsonl,
    /// Lengths followed by bytes
    Binary,
}

impl Form {
    /// Decodes an argument.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the argument.
    pub fn parse(self, text: &str) -> Result<Vec<u8>, String> {
        match self {
            Form::Text => Ok(text.as_bytes().to_vec()),
            Form::Hex => HEXLOWER_PERMISSIVE
                .decode(text.as_bytes())
                .map_err(|error| format!("{text:?} is not hexadecimal: {error}")),
            Form::Base64 => BASE64.decode(text.as_bytes()).map_err(|error| format!("{text:?} is not base64: {error}")),
            Form::U64 => text
                .parse::<u64>()
                .map(|number| number.to_le_bytes().to_vec())
                .map_err(|error| format!("{text:?} is not a 64-bit number: {error}")),
        }
    }

    /// Encodes bytes that are printed by themselves: text is not escaped.
    ///
    /// # Errors
    /// A sentence, if the format is a number and the bytes are not 8 long.
    pub fn whole(self, bytes: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Form::Text => Ok(bytes.to_vec()),
            _ => self.field(bytes).map(String::into_bytes),
        }
    }

    /// Encodes bytes as a field of a line: text is escaped so that it stays on the line (`\t`, `\n`, `\\`, `\xff`).
    ///
    /// # Errors
    /// A sentence, if the format is a number and the bytes are not 8 long.
    pub fn field(self, bytes: &[u8]) -> Result<String, String> {
        match self {
            Form::Text => Ok(escaped(bytes)),
            Form::Hex => Ok(HEXLOWER.encode(bytes)),
            Form::Base64 => Ok(BASE64.encode(bytes)),
            Form::U64 => match bytes.try_into() {
                Ok(number) => Ok(u64::from_le_bytes(number).to_string()),
                Err(_) => Err(format!("\"{}\" has {} bytes, but a u64 has 8", escaped(bytes), bytes.len())),
            },
        }
    }
}

/// Escapes bytes as text on one line, without loss.
pub fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                character if character.is_control() => text.extend(character.escape_default()),
                character => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("writing to a String cannot fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_decodes_its_own_output() {
        let bytes = [0u8, 0xff, b'a', b'\n', 1, 2, 3, 4];
        for form in [Form::Hex, Form::Base64, Form::U64] {
            assert_eq!(form.parse(&form.field(&bytes).unwrap()).unwrap(), bytes);
        }
        assert_eq!(Form::Text.parse("größe").unwrap(), "größe".as_bytes());
        assert_eq!(Form::Text.whole(&bytes).unwrap(), bytes);
        assert_eq!(Form::Hex.parse("FFfe").unwrap(), [0xff, 0xfe]);
    }

    #[test]
    fn input_that_a_format_cannot_represent_is_an_error_that_quotes_it() {
        assert!(Form::Hex.parse("0g").unwrap_err().contains("\"0g\""));
        assert!(Form::Base64.parse("a").unwrap_err().contains("base64"));
        assert!(Form::U64.parse("-1").unwrap_err().contains("-1"));
        assert!(Form::U64.field(b"1234567").unwrap_err().contains("7 bytes"));
    }

    #[test]
    fn escaped_text_keeps_letters_and_escapes_control_bytes() {
        assert_eq!(escaped("Reykjavík".as_bytes()), "Reykjavík");
        assert_eq!(escaped(b"a\tb\nc\\\xff\xfe\0"), "a\\tb\\nc\\\\\\xff\\xfe\\u{0}");
    }
}
