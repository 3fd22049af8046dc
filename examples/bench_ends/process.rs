//! CPU time and memory of other processes, from `/proc`.

use std::{collections::BTreeMap, fs, io, time::Duration};

/// CPU time of each thread of some processes, at one moment.
///
/// `/proc/PID/task/TID/schedstat` counts in nanoseconds; `utime` and `stime` of `/proc/PID/stat`
/// are the same time rounded to ticks of 10 ms, too coarse for a second of light load. Time of a
/// thread that ends between two readings is lost; proxies keep theirs.
pub(crate) struct CpuTime(BTreeMap<u32, Duration>);

impl CpuTime {
    /// Reads it.
    pub(crate) fn of(processes: &[u32]) -> io::Result<Self> {
        let mut threads = BTreeMap::new();
        for process in processes {
            for entry in fs::read_dir(format!("/proc/{process}/task"))? {
                let entry = entry?;
                let text = fs::read_to_string(entry.path().join("schedstat"))?;
                let running = text.split_whitespace().next().and_then(|field| field.parse().ok());
                let thread = entry.file_name().to_str().and_then(|name| name.parse().ok());
                if let (Some(thread), Some(running)) = (thread, running) {
                    threads.insert(thread, Duration::from_nanos(running));
                }
            }
        }
        Ok(Self(threads))
    }

    /// Time spent since an earlier reading, by all threads that still exist.
    pub(crate) fn since(&self, earlier: &Self) -> Duration {
        self.0
            .iter()
            .map(|(thread, time)| {
                time.saturating_sub(earlier.0.get(thread).copied().unwrap_or_default())
            })
            .sum()
    }
}

/// The resident set of a process.
pub(crate) fn resident_kib(process: i32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    size.ok_or_else(|| io::Error::other(format!("no memory of process {process}")))
}
