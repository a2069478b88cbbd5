//! Addresses of libdoorbell's functions in this program, by name: the Python package calls these.

macro_rules! addresses {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), doorbell::$name as *const () as usize)),*]
    };
}

/// Every function that the Python package declares.
pub(super) fn all() -> impl IntoIterator<Item = (&'static str, usize)> {
    addresses![
        doorbell_error_text,
        doorbell_error_detail,
        doorbell_version,
        doorbell_init,
        doorbell_watching,
        doorbell_create,
        doorbell_free,
        doorbell_buffer_register,
        doorbell_buffer_create,
        doorbell_buffer_get,
        doorbell_buffer_free,
        doorbell_copy,
        doorbell_copy_async,
        doorbell_copy_batch_async,
        doorbell_pages_async,
        doorbell_copy_explain,
        doorbell_transfer_create,
        doorbell_transfer_create_bytes,
        doorbell_transfer_async,
        doorbell_transfer_bytes_async,
        doorbell_transfer_free,
        doorbell_wait,
        doorbell_poll,
        doorbell_queue_free,
        doorbell_queue_descriptor,
        doorbell_queue_remove,
        doorbell_queue_wait,
        doorbell_queue_poll,
        doorbell_queue_add,
        doorbell_queue_create,
        doorbell_wait_all,
        doorbell_wait_any,
        doorbell_wait_sleeping,
        doorbell_pending,
        doorbell_stream_wait,
        doorbell_ring_create,
        doorbell_ring_next,
        doorbell_ring_async,
        doorbell_ring_free,
        doorbell_message_create,
        doorbell_message_send,
        doorbell_message_wait,
        doorbell_message_free,
        doorbell_graph_create,
        doorbell_graph_instantiate,
        doorbell_graph_create_kernel,
        doorbell_graph_create_copy,
        doorbell_graph_kernels,
        doorbell_graph_set_param,
        doorbell_graph_set_pointer,
        doorbell_graph_launch,
        doorbell_graph_free,
        doorbell_chain_create,
        doorbell_loop_create,
        doorbell_loop_put,
        doorbell_loop_next,
        doorbell_loop_wait,
        doorbell_loop_descriptor,
        doorbell_loop_statistics,
        doorbell_loop_stop,
        doorbell_loop_free,
        doorbell_recording_pause,
        doorbell_recording_resume,
        doorbell_recording_get,
    ]
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_function_of_the_python_package_has_an_address() {
        let known: Vec<&str> = super::all().into_iter().map(|(name, _)| name).collect();
        let text = include_str!("../../../../../python/doorbell/_header.py");
        let declared =
            text.lines().filter_map(|line| line.trim().strip_prefix('"')?.split_once("\": (")).map(|(name, _)| name);
        let unknown: Vec<&str> = declared.filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "add to crates/bench/workload/src/library/functions.rs: {unknown:?}");
    }
}
