//! Floor 3: the public API. Handles, options and batches; each call delegates to the engine.

pub(crate) mod handle;
pub(crate) mod db;
pub(crate) mod keyspace;
pub(crate) mod batch;
pub(crate) mod snapshot;
pub(crate) mod iter;
pub(crate) mod unordered;
pub(crate) mod options;
pub(crate) mod value_options;
pub(crate) mod kv_device_name;
pub(crate) mod pause;

pub use crate::bypass::rollback::Rollback;
pub use crate::engine::tuning::settings::{
    BucketSplits, Bypass, Durability, LogBackend, Scheduling, ValuePlacement, ValueReordering, WriteOptions,
};
pub use batch::WriteBatch;
pub use db::Db;
pub use iter::{Iter, Keys};
pub use keyspace::Keyspace;
pub use kv_device_name::KvDeviceName;
pub use options::{KeyspaceOptions, Options};
pub use pause::BackgroundPause;
pub use snapshot::Snapshot;
pub use unordered::Unordered;
pub use value_options::{ValueOptions, VictimPolicy};
