//! Which functions were measured to hold other threads up, and for how long.

mod table;

use schema::holds::HoldsOthers;
use table::{GPU, MEASURED};

struct Measured {
    function: &'static str,
    with: &'static str,
    mib: u64,
    p50_ns: u64,
    max_ns: u64,
}

/// Other names for what was measured: those of the runtime, of other forms, and of the table of calls.
const NAMES: [(&str, &str); 17] = [
    ("cuMemAllocHost", "cuMemHostAlloc"),
    ("cudaHostAlloc", "cuMemHostAlloc"),
    ("cudaMallocHost", "cuMemHostAlloc"),
    ("cudaFreeHost", "cuMemFreeHost"),
    ("cudaHostRegister", "cuMemHostRegister"),
    ("cudaHostUnregister", "cuMemHostUnregister"),
    ("cudaMalloc", "cuMemAlloc"),
    ("cudaFree", "cuMemFree"),
    ("cuModuleLoadDataEx", "cuModuleLoadData"),
    ("cuGraphInstantiateWithFlags", "cuGraphInstantiate"),
    ("cuGraphInstantiateWithParams", "cuGraphInstantiate"),
    ("cudaGraphInstantiate", "cuGraphInstantiate"),
    ("cudaGraphExecDestroy", "cuGraphExecDestroy"),
    // (Without a direction: the one that takes longer.)
    ("cuMemcpy", "cuMemcpyHtoD"),
    ("cudaMemcpy", "cuMemcpyHtoD"),
    ("cudaMemcpy host to device", "cuMemcpyHtoD"),
    ("cudaMemcpy device to host", "cuMemcpyDtoH"),
];

/// Measured copies of this size or less hold nobody up.
const SMALL_COPIES: [&str; 3] = ["to 4 KiB", "to 64 KiB", "to 1 MiB"];

/// The longest that was measured of a function. `direction` and `size`: as [`crate::call_kind::CallKind`] has them; `None` if they are not known.
pub fn of_call(name: &str, direction: Option<&str>, size: Option<&str>) -> Option<HoldsOthers> {
    if size.is_some_and(|size| SMALL_COPIES.contains(&size)) {
        return None;
    }
    let directed =
        direction.filter(|direction| *direction != "by address").map(|direction| format!("{name} {direction}"));
    let name = directed.as_deref().unwrap_or(name);
    let measured = NAMES.iter().find(|(of, _)| *of == name).map_or(name, |(_, measured)| measured);
    MEASURED.iter().find(|m| m.function == measured).map(|m| HoldsOthers {
        p50_ns: m.p50_ns,
        max_ns: m.max_ns,
        bytes: (m.mib > 0).then_some(m.mib << 20),
        with: m.with,
        gpu: GPU,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::call::FUNCTIONS;

    #[test]
    fn each_name_is_a_functions_and_each_figure_is_found() {
        let is_known = |name: &str| FUNCTIONS.iter().any(|f| f.name == name.split(' ').next().unwrap_or(name));
        for (name, measured) in NAMES {
            assert!(is_known(name), "{name}");
            assert!(MEASURED.iter().any(|m| m.function == measured), "{measured}");
        }
        for m in MEASURED {
            let is_there = is_known(m.function) || NAMES.iter().any(|(_, measured)| *measured == m.function);
            assert!(is_there && m.p50_ns >= 200_000 && m.max_ns >= m.p50_ns, "{}", m.function);
        }
    }

    #[test]
    fn a_calls_figure_is_that_of_its_direction_and_of_no_small_copy() {
        let of = |name, direction, size| of_call(name, direction, size).map(|h| (h.p50_ns / 1_000_000, h.bytes));
        assert_eq!(of("cudaHostAlloc", None, None), Some((455, Some(1 << 30))));
        assert_eq!(of("cuModuleLoadData", None, None), Some((851, None)));
        assert_eq!(of("cudaMemcpy", Some("device to host"), Some("above 16 MiB")), Some((5, Some(64 << 20))));
        assert_eq!(of("cudaMemcpy", Some("by address"), Some("above 16 MiB")), Some((9, Some(64 << 20))));
        for (name, direction, size) in [
            ("cudaMemcpy", Some("device to device"), Some("above 16 MiB")),
            ("cudaMemcpy", Some("host to device"), Some("to 1 MiB")),
            ("cuLaunchKernel", None, None),
        ] {
            assert_eq!(of(name, direction, size), None, "{name}");
        }
    }
}
