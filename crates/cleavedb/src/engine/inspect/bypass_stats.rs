//! Statistics of the bypass: whether writers go around background work, and what came of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::engine::core::Core;
use crate::engine::view::{View, records_of};

/// Redirects: times in which writers go around background work that is behind ([`Bypass`](crate::Bypass)). Totals count from the
/// last open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct BypassStats {
    /// Writers go around now.
    #[n(0)]
    pub redirects: bool,
    /// When writers would be slowed without that, if all goes on as it does; zero if they would be now. `None` if they would not
    /// be, or if there is no bypass.
    #[n(1)]
    pub to_slowdown: Option<Duration>,
    /// When they would be stopped.
    #[n(2)]
    pub to_stop: Option<Duration>,
    /// How often a redirect began.
    #[n(3)]
    pub redirects_begun: u64,
    /// Bytes of records that were written during redirects.
    #[n(4)]
    pub bytes_redirected: u64,
    /// What writers would have waited in all, by the pace that they would have had without redirects.
    #[n(5)]
    pub waiting_prevented: Duration,
    /// Logs that were born on the slow tier because the fast one would have had to copy them there soon.
    #[n(6)]
    pub logs_born_slow: u64,
    /// Logs that were born on the KV device.
    #[n(7)]
    #[cbor(default)]
    pub logs_born_on_device: u64,
    /// Bytes of logs that have left it for a tier (rollback).
    #[n(8)]
    #[cbor(default)]
    pub bytes_rolled_back: u64,
    /// The KV device, if one is declared.
    #[n(9)]
    #[cbor(default)]
    pub device: Option<KvDeviceStats>,
}

/// The KV device ([`Options::kv_device`](crate::Options::kv_device)). Traffic counts from the time at which the device was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct KvDeviceStats {
    /// Its name, as in errors.
    #[n(0)]
    pub name: String,
    /// Bytes of values that it can hold.
    #[n(1)]
    pub capacity_bytes: u64,
    /// Bytes of the values that it holds.
    #[n(2)]
    pub used_bytes: u64,
    /// Logs of the database that lie there.
    #[n(3)]
    pub logs: usize,
    /// Their bytes.
    #[n(4)]
    pub log_bytes: u64,
    /// Versions in them that were not flushed, and records that tables reference: an upper bound on the keys that lie there (KVAccel:
    /// residents), since a key counts once for each version that was not flushed, deletes included. All of these have their keys in memory
    /// or in tables, so that reads of other keys do not ask the device.
    #[n(5)]
    pub records: u64,
    /// Commands of the key-value side that were carried out.
    #[n(6)]
    pub commands: u64,
    /// Bytes that went to the device over the host's link: keys and values, and what was written to files of its block side.
    #[n(7)]
    pub host_bytes_sent: u64,
    /// Bytes that came back.
    #[n(8)]
    pub host_bytes_received: u64,
    /// Bytes that the device has written to its medium; 0 if it does not say.
    #[n(9)]
    pub media_bytes_written: u64,
    /// Bytes that it has read from there.
    #[n(10)]
    pub media_bytes_read: u64,
}

impl Core {
    /// The figures of the bypass.
    pub fn bypass_stats(&self, view: &View) -> BypassStats {
        let device = self.device_stats(view);
        let redirects = self.bypass.state.lock();
        let forecast = redirects.detector.forecast;
        BypassStats {
            redirects: redirects.detector.redirects,
            to_slowdown: forecast.to_slowdown,
            to_stop: forecast.to_stop,
            redirects_begun: redirects.count,
            bytes_redirected: redirects.bytes,
            waiting_prevented: redirects.waiting_prevented,
            logs_born_slow: self.bypass.logs_born_slow.load(Ordering::Relaxed),
            logs_born_on_device: self.bypass.logs_born_on_device.load(Ordering::Relaxed),
            bytes_rolled_back: self.bypass.rolled_back_bytes.load(Ordering::Relaxed),
            device,
        }
    }

    fn device_stats(&self, view: &View) -> Option<KvDeviceStats> {
        let (device, dir) = (self.kv_device.as_ref()?, self.dirs.device()?);
        let (usage, traffic) = (device.usage(), device.traffic());
        let files = self.log_bytes_in(view, dir);
        Some(KvDeviceStats {
            name: self.dirs.of(dir).display().to_string(),
            capacity_bytes: usage.capacity_bytes,
            used_bytes: usage.used_bytes,
            logs: files.len(),
            log_bytes: files.iter().map(|(_, bytes)| bytes).sum(),
            records: files.iter().map(|(file, _)| records_of(view, self.work.flushed(), *file)).sum(),
            commands: traffic.commands,
            host_bytes_sent: traffic.host_bytes_sent,
            host_bytes_received: traffic.host_bytes_received,
            media_bytes_written: traffic.media_bytes_written,
            media_bytes_read: traffic.media_bytes_read,
        })
    }
}
