//! The sockets that the process listens on: bound by itself, or inherited from the one before it.
//!
//! Of each a duplicate is kept, for the process that comes next. It is dropped as soon as this one stops
//! listening: a socket that nobody accepts from, but somebody holds, lets callers wait for nothing.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

/// A socket and what it is for.
#[derive(Debug)]
pub(super) struct Socket {
    /// `admin`, `health`, or the name of a listener with `listener/` before it.
    pub(super) name: String,
    /// The address as configured, where port 0 isn't yet the one that the system chose.
    pub(super) bind: SocketAddr,
    pub(super) listener: TcpListener,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    inherited: Vec<Socket>,
    open: Vec<Socket>,
}

impl Sockets {
    /// Those of the process before this one.
    pub(super) fn inherited(inherited: Vec<Socket>) -> Self {
        Self { inherited, open: Vec::new() }
    }

    /// Takes over the socket for an address, or binds it. One whose port the system chose is known by its name.
    pub(super) fn bind(&mut self, name: &str, bind: SocketAddr) -> io::Result<TcpListener> {
        let found = self
            .inherited
            .iter()
            .position(|it| it.bind == bind && (bind.port() != 0 || it.name == name));
        let listener = match found {
            Some(index) => self.inherited.swap_remove(index).listener,
            None => TcpListener::bind(bind)?,
        };
        // Whoever waits for it waits with epoll. All duplicates have this in common.
        listener.set_nonblocking(true)?;
        let kept = listener.try_clone()?;
        self.open.push(Socket { name: name.to_owned(), bind, listener: kept });
        Ok(listener)
    }

    /// Every socket is bound: what was inherited and isn't configured any more is closed.
    pub(super) fn complete(&mut self) {
        self.inherited.clear();
    }

    /// Those in use.
    pub(super) fn open(&self) -> &[Socket] {
        &self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_taken_over_and_a_port_of_the_systems_choice_by_name() {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let bound = || TcpListener::bind(any).expect("bound");
        let of = |it: &TcpListener| it.local_addr().expect("an address");
        let (fixed, chosen, gone) = (bound(), bound(), bound());
        let (at, chosen_at, gone_at) = (of(&fixed), of(&chosen), of(&gone));
        let socket = |name: &str, bind, listener| Socket { name: name.into(), bind, listener };
        let mut sockets = Sockets::inherited(vec![
            socket("listener/old", at, fixed),
            socket("listener/a", any, chosen),
            socket("listener/gone", gone_at, gone),
        ]);
        assert_eq!(of(&sockets.bind("listener/new", at).expect("taken over")), at);
        assert_ne!(of(&sockets.bind("listener/b", any).expect("bound")), chosen_at);
        assert_eq!(of(&sockets.bind("listener/a", any).expect("taken over")), chosen_at);
        assert!(sockets.bind("listener/again", at).is_err(), "once only");
        sockets.complete();
        let names: Vec<_> = sockets.open().iter().map(|socket| &*socket.name).collect();
        assert_eq!(names, ["listener/new", "listener/b", "listener/a"]);
        assert!(std::net::TcpStream::connect(gone_at).is_err(), "nobody holds it any more");
    }
}
