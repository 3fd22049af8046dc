//! Records in the same file: a table of their own, written by the same thread.

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition, TableError};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::{Embedded, writer::Task};
use crate::state::{Record, Unavailable};

const TABLE: TableDefinition<'_, [u8; 16], &'static str> = TableDefinition::new("records");

/// Something to be done with records.
pub(super) enum Work {
    Put(Uuid, Box<str>),
    Remove(Uuid),
    Read,
}

impl Embedded {
    pub(in crate::state) async fn put_record(
        &self,
        id: Uuid,
        text: &str,
    ) -> Result<(), Unavailable> {
        self.work(Work::Put(id, text.into())).await.map(drop)
    }

    pub(in crate::state) async fn remove_record(&self, id: Uuid) -> Result<(), Unavailable> {
        self.work(Work::Remove(id)).await.map(drop)
    }

    pub(in crate::state) async fn records(&self) -> Result<Vec<Record>, Unavailable> {
        self.work(Work::Read).await
    }

    async fn work(&self, work: Work) -> Result<Vec<Record>, Unavailable> {
        let (answer, answered) = oneshot::channel();
        self.tasks.try_send(Task::Records { work, answer }).map_err(|_| Unavailable)?;
        answered.await.unwrap_or(Err(Unavailable))
    }
}

/// Does it; what was read.
pub(super) fn apply(database: &Database, work: &Work) -> Result<Vec<Record>, redb::Error> {
    match work {
        Work::Read => return read(database),
        Work::Put(..) | Work::Remove(_) => {}
    }
    let writing = database.begin_write()?;
    {
        let mut table = writing.open_table(TABLE)?;
        match work {
            Work::Put(id, text) => drop(table.insert(id.as_bytes(), &**text)?),
            Work::Remove(id) => drop(table.remove(id.as_bytes())?),
            Work::Read => {}
        }
    }
    writing.commit()?;
    Ok(Vec::new())
}

fn read(database: &Database) -> Result<Vec<Record>, redb::Error> {
    let table = match database.begin_read()?.open_table(TABLE) {
        Ok(table) => table,
        Err(TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut records = Vec::new();
    for entry in table.iter()? {
        let (id, text) = entry?;
        records.push((Uuid::from_bytes(id.value()), text.value().into()));
    }
    Ok(records)
}
