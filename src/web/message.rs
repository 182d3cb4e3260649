//! What a panic says, for `inorder/debug`: a trap alone says nothing, and there are no imports to say it through.

use core::cell::UnsafeCell;

use super::Single;

static MESSAGE: Single<String> = Single(UnsafeCell::new(String::new()));

fn text() -> &'static mut String {
    // SAFETY: there is one thread, and a panic is the last thing that an instance does.
    unsafe { &mut *MESSAGE.0.get() }
}

/// Keeps what panics say from here on.
pub(super) fn keep() {
    std::panic::set_hook(Box::new(|panic| *text() = panic.to_string()));
}

/// Where the last panic's message begins, in UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn message() -> *const u8 {
    text().as_ptr()
}

/// How many bytes it has; 0 before a panic.
#[unsafe(no_mangle)]
pub extern "C" fn message_length() -> usize {
    text().len()
}

/// Panics, so that tests see what happens then: the core itself gives no occasion.
#[unsafe(no_mangle)]
pub extern "C" fn panic() {
    core::panic!("asked for");
}
