//! Without libcuda, loading returns a reason and does not panic.

use cuda::runtime::Runtime;
use cuda::{Cuda, Unavailable};

#[test]
fn a_missing_library_is_named() {
    let Unavailable { reason } = Cuda::load_from(&["/nonexistent/libcuda.so.1"]).unwrap_err();
    assert!(reason.contains("/nonexistent/libcuda.so.1"), "{reason}");
}

#[test]
fn a_library_that_is_not_libcuda_is_named_with_what_it_lacks() {
    let Unavailable { reason } = Cuda::load_from(&["/nonexistent/libcuda.so.1", "libc.so.6"]).unwrap_err();
    assert!(reason.contains("libc.so.6 lacks"), "{reason}");
    assert!(reason.contains("cuInit"), "{reason}");
}

#[test]
fn nowhere_to_look() {
    assert!(!Cuda::load_from(&[]).unwrap_err().reason.is_empty());
}

#[test]
fn loading_answers_on_any_machine() {
    match Cuda::load() {
        Ok(cuda) => assert!(cuda.version().unwrap() >= 11_000),
        Err(Unavailable { reason }) => {
            assert!(!reason.is_empty());
            test_support::skip!("{reason}");
        }
    }
}

#[test]
fn a_missing_runtime_is_named_and_so_is_what_a_wrong_one_lacks() {
    let Unavailable { reason } = Runtime::load_from(&["/nonexistent/libcudart.so.13"]).unwrap_err();
    assert!(reason.contains("not installed") && reason.contains("/nonexistent/libcudart.so.13"), "{reason}");
    let Unavailable { reason } = Runtime::load_from(&["libc.so.6"]).unwrap_err();
    assert!(reason.contains("libc.so.6 lacks") && reason.contains("cudaMemcpy"), "{reason}");
    assert!(Runtime::load_from(&[]).unwrap_err().reason.contains("no place"));
}
