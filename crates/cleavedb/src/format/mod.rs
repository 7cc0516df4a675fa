//! Floor 1: bytes. How records, blocks, tables and edits look on storage, and nothing about where they are kept. Every
//! decoder treats its input as hostile: bad bytes are an error that names file and offset.

pub mod block;
