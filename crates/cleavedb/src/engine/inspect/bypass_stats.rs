//! Statistics of the bypass: whether writers go around background work, and what came of it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::engine::core::Core;

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
}

impl Core {
    /// The figures of the bypass.
    pub fn bypass_stats(&self) -> BypassStats {
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
        }
    }
}
