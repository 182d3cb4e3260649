//! The frames of `inorder.v1.json`.
