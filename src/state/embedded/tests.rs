//! A disk that fails.

use std::sync::{Mutex, PoisonError};

use redb::StorageBackend;
use tokio::time::timeout;

use super::*;
use crate::state::Kind;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Keeps what was written, like a disk, and refuses to when told.
#[derive(Clone, Debug, Default)]
struct Disk {
    bytes: Arc<Mutex<Vec<u8>>>,
    full: Arc<AtomicBool>,
    busy: Arc<AtomicBool>,
    syncs: Arc<AtomicU64>,
}

impl Disk {
    fn opener(&self) -> Opener {
        let disk = self.clone();
        Box::new(move || Database::builder().create_with_backend(disk.clone()))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> io::Result<T> {
        Ok(work(&mut self.bytes.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn writable(&self) -> io::Result<()> {
        if self.full.load(Ordering::SeqCst) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        self.with(|bytes| bytes.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).expect("it is small");
        self.with(|bytes| out.copy_from_slice(&bytes[offset..offset + out.len()]))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.writable()?;
        self.with(|bytes| bytes.resize(usize::try_from(len).expect("it is small"), 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.writable()?;
        while self.busy.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        self.syncs.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.writable()?;
        let offset = usize::try_from(offset).expect("it is small");
        self.with(|bytes| bytes[offset..offset + data.len()].copy_from_slice(data))
    }
}

fn key(id: &str) -> Key {
    Key::new(Kind::Session, "s", id)
}

#[tokio::test]
async fn what_could_not_be_written_was_not_granted() {
    let disk = Disk::default();
    let file = Embedded::start(disk.opener()).expect("it opens").expect("a thread");
    let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
    assert_eq!(file.claim(&key("1"), &a, DAY).await, Ok(Claim::Granted));
    disk.full.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(file.claim(&key("2"), &a, DAY).await, Err(Unavailable));
        assert!(!file.available());
    }
    assert!(file.failures() >= 3);
    disk.full.store(false, Ordering::SeqCst);
    let granted = async { while file.claim(&key("2"), &b, DAY).await != Ok(Claim::Granted) {} };
    timeout(Duration::from_secs(20), granted).await.expect("it is opened anew");
    assert!(file.available());
    assert_eq!(file.claim(&key("1"), &b, DAY).await, Ok(Claim::Taken));
    assert_eq!(file.claim(&key("1"), &a, DAY).await, Ok(Claim::Granted));
}

#[tokio::test]
async fn claims_that_wait_share_a_sync() {
    let disk = Disk::default();
    let file = Arc::new(Embedded::start(disk.opener()).expect("it opens").expect("a thread"));
    let before = disk.syncs.load(Ordering::SeqCst);
    let owner: Arc<str> = "a".into();
    disk.busy.store(true, Ordering::SeqCst);
    let mut claims = tokio::task::JoinSet::new();
    for number in 0..64 {
        let (file, owner) = (Arc::clone(&file), Arc::clone(&owner));
        claims.spawn(async move { file.claim(&key(&number.to_string()), &owner, DAY).await });
    }
    // On one thread, everybody has had a turn when this one comes again.
    tokio::task::yield_now().await;
    disk.busy.store(false, Ordering::SeqCst);
    let granted = timeout(Duration::from_secs(20), claims.join_all()).await.expect("in time");
    assert_eq!(granted, vec![Ok(Claim::Granted); 64]);
    let syncs = disk.syncs.load(Ordering::SeqCst) - before;
    assert!(syncs < 10, "{syncs}");
}

#[tokio::test]
async fn what_has_ended_is_taken_out() {
    let disk = Disk::default();
    let file = Embedded::start(disk.opener()).expect("it opens").expect("a thread");
    let owner: Arc<str> = "a".into();
    assert_eq!(file.claim(&key("short"), &owner, Duration::ZERO).await, Ok(Claim::Granted));
    assert_eq!(file.claim(&key("long"), &owner, DAY).await, Ok(Claim::Granted));
    drop(file);
    // The writer closes it in its own time.
    let closed = async {
        while Arc::strong_count(&disk.bytes) > 1 {
            tokio::task::yield_now().await
        }
    };
    timeout(Duration::from_secs(20), closed).await.expect("in time");
    let database = disk.opener()().expect("it opens");
    let found = read(&database, millis(Clock.unix())).expect("it can be read");
    assert_eq!(found.iter().map(|found| found.key).collect::<Vec<_>>(), [key("long")]);
    let count = |database: &Database| {
        let reading = database.begin_read().expect("a transaction");
        reading.open_table(TABLE).expect("the table").iter().expect("rows").count()
    };
    assert_eq!(count(&database), 2);
    writer::reap(&database).expect("it can be written");
    assert_eq!(count(&database), 1);
}
