//! Consistent state from an inconsistent WebSocket.

#[cfg(feature = "wire")]
pub mod wire;
