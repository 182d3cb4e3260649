#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| inorder_fuzz::options(data));
