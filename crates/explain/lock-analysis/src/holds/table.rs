//! Made by `cargo xtask holds` from `docs/results/data/holds.json`: of each function the longest in the median.

use super::Measured;

pub(super) const GPU: &str = "NVIDIA H200";

const fn m(function: &'static str, with: &'static str, mib: u64, p50_ns: u64, max_ns: u64) -> Measured {
    Measured { function, with, mib, p50_ns, max_ns }
}

#[rustfmt::skip]
pub(super) const MEASURED: &[Measured] = &[
    m("cuCtxCreate", "", 0, 841100, 1176200),
    m("cuGraphExecDestroy", "2,000 nodes", 0, 454100, 1192600),
    m("cuGraphInstantiate", "2,000 nodes", 0, 1959400, 2633800),
    m("cuLibraryLoadData", "cuLibraryGetKernel, cuKernelGetFunction, cuFuncLoad, cubin, 400 kernels", 0, 574600, 1063900),
    m("cuLibraryUnload", "cubin, 400 kernels", 0, 1339700, 2244100),
    m("cuMemAlloc", "", 2048, 437750, 1008400),
    m("cuMemFree", "", 2048, 782950, 1678400),
    m("cuMemFreeHost", "", 1024, 133220200, 136225500),
    m("cuMemHostAlloc", "", 1024, 455384200, 466353800),
    m("cuMemHostRegister", "fresh pages", 1024, 368630500, 443380900),
    m("cuMemHostUnregister", "fresh pages", 1024, 19725800, 22329500),
    m("cuMemcpyDtoH", "pageable", 64, 5281400, 6235200),
    m("cuMemcpyHtoD", "pageable", 64, 9870600, 17510000),
    m("cuModuleLoadData", "PTX, 400 kernels", 0, 851494800, 1200926700),
];
