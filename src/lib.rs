//! Consistent state from an inconsistent WebSocket.
//!
//! ```text
//!            wire                                                    application
//!  socket ──▶ codec ──▶ Client::handle_* ─┬─ entity.rs      R1–R13   ▲
//!                                         ├─ gap.rs         R3, R19  │ Output::Change, Sync, Final
//!                                         ├─ recovery.rs    R19–R23 ─┤
//!                                         ├─ wave.rs        R30      │
//!  socket ◀── codec ◀── Output::Send ◀────┤─ topic.rs       R39      ▼
//!                                         └─ connection.rs  R25–R29 ─▶ Output::Dial, Close, GetToken
//! ```
//!
//! The core is sans-IO: it never reads a clock, draws a random number, parses a byte or looks into a payload.
//! Drivers do: the wasm one in `web.rs`, the native ones of the tests. The rules (R1 …) are in `docs/protocol.md`.

pub mod client;
pub mod config;
pub mod connection;
pub mod entity;
mod gap;
pub mod ids;
mod input;
mod jitter;
mod output;
mod recovery;
pub mod stats;
pub mod time;
mod topic;
mod wave;
#[cfg(target_arch = "wasm32")]
pub mod web;
#[cfg(feature = "wire")]
pub mod wire;
#[cfg(feature = "zoo")]
pub mod zoo;
#[cfg(not(feature = "zoo"))]
mod zoo;

pub use client::Client;
