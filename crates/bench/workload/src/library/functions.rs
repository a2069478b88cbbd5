//! Addresses of libdoorbell's functions in this program, by name: the Python package calls these.

macro_rules! addresses {
    ($($name:ident),* $(,)?) => {
        [$((stringify!($name), doorbell::$name as *const () as usize)),*]
    };
}

/// Every function that the Python package declares.
pub(super) fn all() -> impl IntoIterator<Item = (&'static str, usize)> {
    addresses![
        doorbell_init,
        doorbell_open,
        doorbell_close,
        doorbell_pin,
        doorbell_allocate,
        doorbell_unpin,
        doorbell_buffer,
        doorbell_explain,
        doorbell_copy,
        doorbell_copy_async,
        doorbell_copy_batch,
        doorbell_copy_ordered,
        doorbell_copy_after_stream,
        doorbell_hold_stream,
        doorbell_prepare,
        doorbell_prepare_bytes,
        doorbell_submit,
        doorbell_submit_bytes,
        doorbell_release,
        doorbell_wait,
        doorbell_poll,
        doorbell_query,
        doorbell_ring_open,
        doorbell_ring_next,
        doorbell_ring_submit,
        doorbell_ring_close,
        doorbell_message_open,
        doorbell_message_send,
        doorbell_message_wait,
        doorbell_message_close,
        doorbell_graph_prepare,
        doorbell_graph_instantiate,
        doorbell_kernel_prepare,
        doorbell_graph_kernels,
        doorbell_graph_set_param,
        doorbell_graph_set_pointer,
        doorbell_chain_prepare,
        doorbell_launch,
        doorbell_launch_after,
        doorbell_submit_after,
        doorbell_copy_after,
        doorbell_launch_after_stream,
        doorbell_graph_free,
        doorbell_version,
        doorbell_watching,
        doorbell_pause_recording,
        doorbell_resume_recording,
        doorbell_is_recorded,
        doorbell_error_text,
        doorbell_error_detail,
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
