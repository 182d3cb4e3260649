//! The gateway as its clients see it: a real process, real sockets, the rules G1 to G13 by their names.

mod faults;
mod http;
mod operation;
mod rules;
mod sockets;
mod topics;
mod workloads;
mod world;
