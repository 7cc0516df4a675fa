//! Sizes derived from the memory budget, and what follows from them while the database is open.

pub(crate) mod sizes;
pub(crate) mod settings;
