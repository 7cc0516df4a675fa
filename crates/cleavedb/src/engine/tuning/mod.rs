//! The settings of an open database, and the sizes that the engine derives from its memory budget.

pub(crate) mod sizes;
pub(crate) mod settings;
