//! A world for the core: a model gateway, a network that fails, timers that are late, and an oracle.

#![allow(dead_code)] // each target that includes the world uses another part of it

pub mod campaign;
pub mod enumeration;
pub mod gateway;
pub mod page;
pub mod slips;
pub mod source;
pub mod trace;
#[allow(clippy::module_inception)]
pub mod world;
