//! The files that a configuration names, and upstreams that are in force no more.

use super::*;
