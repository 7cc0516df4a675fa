//! The settings of an open database, the sizes that the engine derives from its budgets, and which files lie on which tier.

pub(crate) mod front_room;
pub(crate) mod sizes;
pub(crate) mod value_sizes;
pub(crate) mod settings;
pub(crate) mod tiers;
pub(crate) mod tuner;
