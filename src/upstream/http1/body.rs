//! The body of an answer.

use std::{
    future::poll_fn,
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};

use super::{
    Broken,
    chunks::{Chunks, Piece},
    connection::Connection,
    head::Framing,
    shelf::Shelf,
};
use crate::upstream::Error;

/// A body that is still arriving. Dropping it before its end closes the connection.
#[derive(Debug)]
pub(in crate::upstream) struct Body {
    rest: Rest,
    /// `None` when all has come.
    connection: Option<Connection>,
    /// For a connection that takes another call.
    shelf: Option<Arc<Shelf>>,
}

/// What has yet to come.
#[derive(Debug)]
enum Rest {
    Length(u64),
    Chunks(Chunks),
    UntilClose,
}

impl Body {
    pub(super) fn new(
        connection: Connection,
        framing: Framing,
        keeps: bool,
        shelf: &Arc<Shelf>,
    ) -> Self {
        let rest = match framing {
            Framing::Length(length) => Rest::Length(length),
            Framing::Chunked => Rest::Chunks(Chunks::Size),
            Framing::Close => Rest::UntilClose,
        };
        let shelf = keeps.then(|| Arc::clone(shelf));
        let mut body = Self { rest, connection: Some(connection), shelf };
        if framing == Framing::Length(0) {
            body.finish();
        }
        body
    }

    /// The next piece; `None` at the end. Cancel-safe.
    pub(in crate::upstream) async fn frame(&mut self) -> Option<Result<Bytes, Error>> {
        let piece = poll_fn(|context| self.poll_frame(context)).await?;
        Some(piece.map_err(|broken| Error::Failed(Box::new(broken))))
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let polled = ready!(self.poll_piece(context));
        if !matches!(polled, Ok(Some(_))) {
            // After an error as well there is nothing more to come.
            self.connection = None;
        }
        Poll::Ready(polled.transpose())
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Broken>> {
        loop {
            let Some(connection) = &mut self.connection else { return Poll::Ready(Ok(None)) };
            match self.rest.take(&mut connection.come)? {
                Piece::Data(data) => {
                    if matches!(self.rest, Rest::Length(0)) {
                        // Nobody may ask again who knows the length.
                        self.finish();
                    }
                    return Poll::Ready(Ok(Some(data)));
                }
                Piece::End => {
                    self.finish();
                    return Poll::Ready(Ok(None));
                }
                Piece::Nothing => {}
            }
            if connection.come.is_empty() {
                // What it shared with pieces isn't held while nothing comes.
                connection.come = BytesMut::new();
            }
            if ready!(connection.poll_come(context))? == 0 {
                return Poll::Ready(match self.rest {
                    Rest::UntilClose => Ok(None),
                    Rest::Length(_) | Rest::Chunks(_) => Err(Broken::Cut),
                });
            }
        }
    }

    /// All has come: the connection goes back, or ends.
    fn finish(&mut self) {
        let stream = self.connection.take().and_then(Connection::into_clean);
        if let (Some(stream), Some(shelf)) = (stream, self.shelf.take()) {
            shelf.put(stream);
        }
    }
}

impl Rest {
    /// The next piece of what has come.
    fn take(&mut self, come: &mut BytesMut) -> Result<Piece, Broken> {
        match self {
            Self::Chunks(chunks) => chunks.next(come),
            Self::Length(0) => Ok(Piece::End),
            Self::Length(_) | Self::UntilClose if come.is_empty() => Ok(Piece::Nothing),
            Self::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(come.len());
                *left -= length as u64;
                Ok(Piece::Data(come.split_to(length).freeze()))
            }
            Self::UntilClose => Ok(Piece::Data(mem::take(come).freeze())),
        }
    }
}
