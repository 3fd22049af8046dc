//! What the next process finds.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::state::{Unavailable, Use};

const NOW: Duration = Duration::from_secs(1_800_000_000);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A folder, and a boot of the machine that it is on.
struct Site {
    directory: TempDir,
    boot: Uuid,
}

impl Site {
    fn new() -> Self {
        Self { directory: TempDir::new().expect("a directory"), boot: Uuid::now_v7() }
    }

    fn open(&self, begun: bool, now: Duration) -> Once {
        open_under(self.directory.path(), self.boot, begun, now).expect("it opens")
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn lengths(&self) -> [u64; 2] {
        NAMES.map(|name| fs::metadata(self.path(name)).expect("a file").len())
    }
}

fn foreign(site: &Site, name: &str) {
    fs::write(site.path(name), b"something").expect("a file");
}

/// Claims something that can be used for a minute from `from` on.
async fn claim(once: &Once, id: u8, from: Duration, now: Duration) -> Result<Use, Unavailable> {
    once.claim(&[id; 32], from, from + MINUTE, now).await
}

#[tokio::test]
async fn what_one_process_used_the_next_one_knows() {
    let site = Site::new();
    let once = site.open(true, NOW);
    assert_eq!(claim(&once, 1, NOW, NOW).await, Ok(Use::First));
    assert_eq!(claim(&once, 1, NOW, NOW).await, Ok(Use::Again));
    // Nothing is said to a process that is killed; here it isn't even gone.
    let next = site.open(false, NOW + SECOND);
    assert_eq!(claim(&next, 1, NOW, NOW + SECOND).await, Ok(Use::Again));
    assert_eq!(claim(&next, 2, NOW, NOW + SECOND).await, Ok(Use::First));
    drop(once);
    let third = site.open(false, NOW + 2 * SECOND);
    for id in [1, 2] {
        assert_eq!(claim(&third, id, NOW, NOW + 2 * SECOND).await, Ok(Use::Again), "{id}");
    }
    let mode = fs::metadata(site.path("once.0")).expect("a file").permissions();
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(mode.mode() & 0o777, 0o600);
}

#[tokio::test]
async fn what_isnt_known_to_be_whole_is_not_believed() {
    type Damage = fn(&mut Site);
    let damages: [(&str, Damage); 7] = [
        ("another boot", |site| site.boot = Uuid::now_v7()),
        ("gone", |site| NAMES.iter().for_each(|name| drop(fs::remove_file(site.path(name))))),
        ("the first is another", |site| foreign(site, "once.0")),
        ("the second is another", |site| foreign(site, "once.1")),
        ("both are empty", |site| {
            NAMES.iter().for_each(|name| fs::write(site.path(name), b"").expect("a file"));
        }),
        ("a flipped bit", |site| {
            let mut bytes = fs::read(site.path("once.0")).expect("a file");
            bytes[20] ^= 1;
            fs::write(site.path("once.0"), bytes).expect("a file");
        }),
        ("too long", |site| {
            let file = OpenOptions::new().write(true).open(site.path("once.1")).expect("a file");
            file.set_len(LONGEST + 1).expect("a sparse file");
        }),
    ];
    for (what, damage) in damages {
        let mut site = Site::new();
        assert_eq!(claim(&site.open(true, NOW), 1, NOW, NOW).await, Ok(Use::First));
        damage(&mut site);
        let since = NOW + SECOND;
        // However often it is started again, what was before stays unknown, and what came after is known.
        for process in 0..3_u8 {
            let once = site.open(false, since + SECOND * process.into());
            let now = since + 4 * SECOND;
            for from in [NOW, since] {
                let told = claim(&once, 1, from, now).await;
                assert_eq!(told, Ok(Use::Unknown { since }), "{what}");
            }
            for earlier in 0..process {
                let told = claim(&once, 10 + earlier, since + SECOND, now).await;
                assert_eq!(told, Ok(Use::Again), "{what}");
            }
            let told = claim(&once, 10 + process, since + SECOND, now).await;
            assert_eq!(told, Ok(Use::First), "{what}");
        }
    }
}

#[tokio::test]
async fn a_row_that_was_cut_is_none() {
    let site = Site::new();
    let once = site.open(true, NOW);
    // The first generation is as short as can be.
    for id in [1, 2, 3] {
        assert_eq!(claim(&once, id, NOW, NOW).await, Ok(Use::First));
    }
    let whole = (HEAD + 2 * ROW) as u64;
    let written = site.lengths().iter().position(|length| *length == whole).expect("two rows");
    let file = OpenOptions::new().write(true).open(site.path(NAMES[written])).expect("a file");
    file.set_len(whole - 1).expect("it is cut");
    let next = site.open(false, NOW);
    for (id, told) in [(1, Use::Again), (2, Use::Again), (4, Use::First)] {
        assert_eq!(claim(&next, id, NOW, NOW).await, Ok(told), "{id}");
    }
    let last = site.open(false, NOW);
    for id in [1, 2, 4] {
        assert_eq!(claim(&last, id, NOW, NOW).await, Ok(Use::Again), "{id}");
    }
}

#[tokio::test]
async fn what_has_ended_is_taken_out() {
    let site = Site::new();
    let once = site.open(true, NOW);
    let mut most = 0;
    for second in 0..400 {
        let now = NOW + second * SECOND;
        let mut id = [0; 32];
        id[..4].copy_from_slice(&second.to_be_bytes());
        assert_eq!(once.claim(&id, now, now + MINUTE, now).await, Ok(Use::First));
        most = site.lengths().into_iter().max().expect("two").max(most);
    }
    assert!(most <= (HEAD + 65 * ROW) as u64, "{most}");
    // All that can be repeated is known to the next process, in whichever file it is.
    let now = NOW + 399 * SECOND;
    let next = site.open(false, now);
    for second in 340..400_u32 {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&second.to_be_bytes());
        let from = NOW + second * SECOND;
        assert_eq!(next.claim(&id, from, from + MINUTE, now).await, Ok(Use::Again), "{second}");
    }
}

#[tokio::test]
async fn what_cant_be_written_isnt_used() {
    let site = Site::new();
    drop(site.open(true, NOW));
    let files = NAMES.map(|name| File::open(site.path(name)).expect("it can be read"));
    let log = Log { files, head: head(site.boot, Duration::ZERO), second: false, written: 40 };
    let once = Once::written(Duration::ZERO, Default::default(), log);
    for failures in 1..3 {
        assert_eq!(claim(&once, 1, NOW, NOW).await, Err(Unavailable));
        assert_eq!(once.failures(), failures);
    }
}
