//! The driver functions that this crate calls, found by name in libcuda.
//!
//! Signatures are those of the CUDA driver API reference. The versioned names (`_v2`) are the ones to which `cuda.h` maps the
//! plain names since CUDA 4.0 (memory, contexts), 10.1 (stream capture) and 11.4 (UUID). So any driver that runs CUDA 11.4 has
//! them. Functions that only newer drivers have are optional: where one is missing, its call returns an error.

use crate::error::{Error, Unavailable};
use crate::library::Loaded;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

/// `CUresult`.
pub(crate) type Status = c_int;
pub(crate) type RawContext = *mut c_void;
pub(crate) type RawStream = *mut c_void;
pub(crate) type RawEvent = *mut c_void;
pub(crate) type RawModule = *mut c_void;
pub(crate) type RawFunction = *mut c_void;
pub(crate) type RawGraph = *mut c_void;
pub(crate) type RawGraphExec = *mut c_void;
pub(crate) type RawNode = *mut c_void;
pub(crate) type RawLink = *mut c_void;

pub(crate) const SUCCESS: Status = 0;
/// `CUDA_ERROR_NOT_READY`: the result of a query while work is pending.
pub(crate) const NOT_READY: Status = 600;

/// Where libcuda is searched; the first is found through LD_LIBRARY_PATH and the linker's cache.
const PLACES: [&str; 3] = ["libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"];

macro_rules! functions {
    (
        $(fn $name:ident($($argument:ident: $kind:ty),*);)*
        optional
        $(fn $newer:ident($($its:ident: $of:ty),*);)*
    ) => {
        #[allow(non_snake_case)]
        struct Table {
            $($name: unsafe extern "C" fn($($kind),*) -> Status,)*
            $($newer: Option<unsafe extern "C" fn($($of),*) -> Status>,)*
        }

        impl Table {
            /// # Safety
            /// Each address that `find` returns is that of a function with this name and its signature here, which is never
            /// unloaded.
            unsafe fn find<E>(mut find: impl FnMut(&CStr) -> std::result::Result<NonNull<c_void>, E>) -> std::result::Result<Table, E> {
                Ok(Table {
                    $($name: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => c"",
                        };
                        let address = find(NAME)?.as_ptr();
                        // SAFETY: the caller promises that this function exists.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> Status>(address) }
                    },)*
                    $($newer: {
                        const NAME: &CStr = match CStr::from_bytes_with_nul(concat!(stringify!($newer), "\0").as_bytes()) {
                            Ok(name) => name,
                            Err(_) => c"",
                        };
                        find(NAME).ok().map(|address| {
                            let address = address.as_ptr();
                            // SAFETY: as above.
                            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($of),*) -> Status>(address) }
                        })
                    },)*
                })
            }
        }

        impl Cuda {
            $(
                /// # Safety
                /// The requirements of this function in the CUDA driver API reference.
                // The two functions that name errors, and the query, are called through the table.
                #[allow(non_snake_case, clippy::too_many_arguments, dead_code)]
                #[inline]
                pub(crate) unsafe fn $name(&self, $($argument: $kind),*) -> crate::Result<()> {
                    // SAFETY: passed on to the caller.
                    self.check(stringify!($name), unsafe { (self.table.$name)($($argument),*) })
                }
            )*
            $(
                /// # Safety
                /// The requirements of this function in the CUDA driver API reference.
                #[allow(non_snake_case, clippy::too_many_arguments)]
                #[inline]
                pub(crate) unsafe fn $newer(&self, $($its: $of),*) -> crate::Result<()> {
                    let function = self.table.$newer.ok_or(Error::Missing { call: stringify!($newer) })?;
                    // SAFETY: passed on to the caller.
                    self.check(stringify!($newer), unsafe { function($($its),*) })
                }
            )*

            /// Whether this driver has one of the functions that only newer ones have.
            pub(crate) fn has(&self, name: &str) -> bool {
                $(
                    if name == stringify!($newer) {
                        return self.table.$newer.is_some();
                    }
                )*
                false
            }
        }
    };
}

functions! {
    fn cuInit(flags: c_uint);
    fn cuDriverGetVersion(version: *mut c_int);
    fn cuGetErrorName(status: Status, name: *mut *const c_char);
    fn cuGetErrorString(status: Status, text: *mut *const c_char);
    fn cuDeviceGetCount(count: *mut c_int);
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int);
    fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int);
    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int);
    fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: c_int);
    fn cuDevicePrimaryCtxRetain(context: *mut RawContext, device: c_int);
    fn cuDevicePrimaryCtxRelease_v2(device: c_int);
    fn cuCtxSetCurrent(context: RawContext);
    fn cuCtxSynchronize();
    fn cuDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int);
    fn cuCtxEnablePeerAccess(peer: RawContext, flags: c_uint);
    fn cuMemAlloc_v2(address: *mut u64, bytes: usize);
    fn cuMemFree_v2(address: u64);
    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemFreeHost(pointer: *mut c_void);
    fn cuMemHostGetDevicePointer_v2(address: *mut u64, pointer: *mut c_void, flags: c_uint);
    fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint);
    fn cuMemHostUnregister(pointer: *mut c_void);
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64);
    fn cuPointerGetAttribute(value: *mut c_void, attribute: c_int, address: u64);
    fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize);
    fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize);
    fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: RawStream);
    fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: RawStream);
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: RawStream);
    fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: RawStream);
    fn cuMemsetD32Async(to: u64, value: c_uint, count: usize, stream: RawStream);
    fn cuStreamCreate(stream: *mut RawStream, flags: c_uint);
    fn cuStreamDestroy_v2(stream: RawStream);
    fn cuStreamSynchronize(stream: RawStream);
    fn cuStreamQuery(stream: RawStream);
    fn cuStreamBeginCapture_v2(stream: RawStream, mode: c_int);
    fn cuStreamEndCapture(stream: RawStream, graph: *mut RawGraph);
    fn cuEventCreate(event: *mut RawEvent, flags: c_uint);
    fn cuEventRecord(event: RawEvent, stream: RawStream);
    fn cuEventSynchronize(event: RawEvent);
    fn cuEventDestroy_v2(event: RawEvent);
    fn cuModuleLoadData(module: *mut RawModule, image: *const c_void);
    fn cuModuleUnload(module: RawModule);
    fn cuModuleGetFunction(function: *mut RawFunction, module: RawModule, name: *const c_char);
    fn cuLaunchKernel(
        function: RawFunction,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared_bytes: c_uint,
        stream: RawStream,
        arguments: *mut *mut c_void,
        extra: *mut *mut c_void
    );
    fn cuGraphInstantiateWithFlags(exec: *mut RawGraphExec, graph: RawGraph, flags: u64);
    fn cuGraphLaunch(exec: RawGraphExec, stream: RawStream);
    fn cuGraphExecDestroy(exec: RawGraphExec);
    fn cuGraphDestroy(graph: RawGraph);
    optional
    fn cuStreamCreateWithPriority(stream: *mut RawStream, flags: c_uint, priority: c_int);
    fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    fn cuCtxGetCurrent(context: *mut RawContext);
    fn cuStreamWaitValue32_v2(stream: RawStream, at: u64, value: c_uint, flags: c_uint);
    fn cuMemcpyPeerAsync(to: u64, to_context: RawContext, from: u64, from_context: RawContext, bytes: usize, stream: RawStream);
    fn cuStreamWriteValue32_v2(stream: RawStream, at: u64, value: c_uint, flags: c_uint);
    fn cuMemcpyBatchAsync_v2(
        to: *mut u64, from: *mut u64, bytes: *mut usize, count: usize,
        attributes: *mut CopyAttributes, of: *mut usize, attribute_count: usize, stream: RawStream
    );
    fn cuMemcpyBatchAsync(
        to: *mut u64, from: *mut u64, bytes: *mut usize, count: usize,
        attributes: *mut CopyAttributes, of: *mut usize, attribute_count: usize, failed: *mut usize, stream: RawStream
    );
    fn cuModuleGetLoadingMode(mode: *mut c_int);
    fn cuLinkCreate_v2(options: c_uint, names: *mut c_int, values: *mut *mut c_void, link: *mut RawLink);
    fn cuLinkAddData_v2(
        link: RawLink, kind: c_int, data: *mut c_void, bytes: usize, name: *const c_char,
        options: c_uint, names: *mut c_int, values: *mut *mut c_void
    );
    fn cuLinkComplete(link: RawLink, image: *mut *mut c_void, bytes: *mut usize);
    fn cuLinkDestroy(link: RawLink);
    fn cuLaunchKernelEx(
        config: *const LaunchConfig, function: RawFunction, arguments: *mut *mut c_void, extra: *mut *mut c_void
    );
    fn cuFuncSetAttribute(function: RawFunction, attribute: c_int, value: c_int);
    fn cuStreamWaitEvent(stream: RawStream, event: RawEvent, flags: c_uint);
    fn cuEventRecordWithFlags(event: RawEvent, stream: RawStream, flags: c_uint);
    fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: RawStream);
    fn cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: RawStream);
    fn cuMemsetD2D32Async(to: u64, pitch: usize, value: c_uint, width: usize, height: usize, stream: RawStream);
    fn cuMemcpy2DAsync_v2(copy: *const Copy2d, stream: RawStream);
    fn cuLaunchHostFunc(stream: RawStream, function: extern "C" fn(*mut c_void), data: *mut c_void);
    fn cuGraphUpload(exec: RawGraphExec, stream: RawStream);
    fn cuGraphGetNodes(graph: RawGraph, nodes: *mut RawNode, count: *mut usize);
    fn cuGraphExecKernelNodeSetParams(exec: RawGraphExec, node: RawNode, parameters: *const KernelNode);
    fn cuGraphAddChildGraphNode(
        node: *mut RawNode, graph: RawGraph, after: *const RawNode, count: usize, child: RawGraph
    );
    fn cuStreamBeginCaptureToGraph(
        stream: RawStream, graph: RawGraph, after: *const RawNode, edges: *const c_void, count: usize, mode: c_int
    );
    fn cuGraphConditionalHandleCreate(
        handle: *mut u64, graph: RawGraph, context: RawContext, value: c_uint, flags: c_uint
    );
    fn cuGraphAddNode(
        node: *mut RawNode, graph: RawGraph, after: *const RawNode, count: usize, parameters: *mut NodeParameters
    );
    fn cuGraphClone(clone: *mut RawGraph, graph: RawGraph);
    fn cuGraphNodeGetType(node: RawNode, kind: *mut c_int);
    fn cuGraphChildGraphNodeGetGraph(node: RawNode, graph: *mut RawGraph);
    fn cuGraphMemcpyNodeGetParams(node: RawNode, copy: *mut Copy3d);
    fn cuGraphMemcpyNodeSetParams(node: RawNode, copy: *const Copy3d);
}

/// `CUDA_MEMCPY2D_v2`.
#[repr(C)]
pub(crate) struct Copy2d {
    pub from: Side2d,
    pub to: Side2d,
    pub width: usize,
    pub height: usize,
}

/// One side of it.
#[repr(C)]
pub(crate) struct Side2d {
    pub x: usize,
    pub y: usize,
    /// `CU_MEMORYTYPE_HOST` is 1, `CU_MEMORYTYPE_DEVICE` 2.
    pub kind: c_int,
    pub host: *mut c_void,
    pub device: u64,
    pub array: *mut c_void,
    pub pitch: usize,
}

/// `CUDA_MEMCPY3D_v2`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy3d {
    pub from: Side3d,
    pub to: Side3d,
    /// Bytes of a row, rows of a slice, slices.
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// One side of it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Side3d {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub level: usize,
    /// `CU_MEMORYTYPE_HOST` is 1, `CU_MEMORYTYPE_UNIFIED` 4. With 4, `device` is the address of memory of any kind.
    pub kind: c_int,
    pub host: *mut c_void,
    pub device: u64,
    pub array: *mut c_void,
    pub reserved: *mut c_void,
    /// Bytes from a row to the next, and rows from a slice to the next.
    pub pitch: usize,
    pub height: usize,
}

/// `CUDA_KERNEL_NODE_PARAMS_v1`.
#[repr(C)]
pub(crate) struct KernelNode {
    pub function: RawFunction,
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub arguments: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// `CUgraphNodeParams` of a conditional node: the union has room for 232 bytes.
#[repr(C)]
pub(crate) struct NodeParameters {
    /// `CU_GRAPH_NODE_TYPE_CONDITIONAL` is 13.
    pub kind: c_int,
    pub reserved: [c_int; 3],
    pub condition: u64,
    /// `CU_GRAPH_COND_TYPE_IF` is 0, `CU_GRAPH_COND_TYPE_WHILE` 1.
    pub conditional: c_int,
    pub bodies: c_uint,
    /// Written by CUDA: an array of `bodies` graphs, which belong to the node.
    pub graphs: *mut RawGraph,
    pub context: RawContext,
    pub rest: [u64; 25],
    pub reserved_too: u64,
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(crate) struct LaunchConfig {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared_bytes: c_uint,
    pub stream: RawStream,
    pub attributes: *mut LaunchAttribute,
    pub attribute_count: c_uint,
}

/// `CUlaunchAttribute`: a number, and a union of 64 bytes at a multiple of 8.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub number: c_int,
    pub padding: c_int,
    pub value: [c_uint; 16],
}

/// `CUmemcpyAttributes`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct CopyAttributes {
    /// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM` is 1.
    pub source_order: c_int,
    /// `CUmemLocation` of source and destination: type and number, hints for managed memory.
    pub source: [c_int; 2],
    pub destination: [c_int; 2],
    pub flags: c_uint,
}

/// The loaded and initialised driver.
#[derive(Clone, Copy)]
pub struct Cuda {
    table: &'static Table,
}

impl std::fmt::Debug for Cuda {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cuda")
    }
}

impl Cuda {
    /// Opens libcuda and initialises it. It stays loaded for the life of the process, because its threads run that long.
    pub fn load() -> std::result::Result<Cuda, Unavailable> {
        Cuda::load_from(&PLACES)
    }

    /// As [`Cuda::load`], from the first of these libraries that opens.
    pub fn load_from(places: &[&str]) -> std::result::Result<Cuda, Unavailable> {
        let library = Loaded::first(places, "libcuda").map_err(|reason| Unavailable { reason })?;
        // SAFETY: the signatures are those of the CUDA driver API reference, and the library is never closed.
        Cuda::init(library.functions(|find| unsafe { Table::find(find) })?)
    }

    /// A driver with functions that the caller provides, such as a stand-in for libcuda in tests.
    ///
    /// # Safety
    /// For every name that `find` resolves, it returns a function with the signature and behaviour of the CUDA driver API
    /// reference, which is never unloaded.
    pub unsafe fn from_symbols(
        mut find: impl FnMut(&CStr) -> Option<NonNull<c_void>>,
    ) -> std::result::Result<Cuda, Unavailable> {
        // SAFETY: passed on to the caller.
        let table = unsafe {
            Table::find(|name| {
                find(name).ok_or_else(|| Unavailable { reason: format!("no {}", name.to_string_lossy()) })
            })
        }?;
        Cuda::init(table)
    }

    fn init(table: Table) -> std::result::Result<Cuda, Unavailable> {
        let cuda = Cuda { table: Box::leak(Box::new(table)) };
        // SAFETY: may be called at any time, any number of times.
        unsafe { cuda.cuInit(0) }.map_err(|error| Unavailable { reason: error.to_string() })?;
        Ok(cuda)
    }

    /// The CUDA version of the driver: 13000 is 13.0.
    pub fn version(&self) -> crate::Result<i32> {
        let mut version = 0;
        // SAFETY: writes one int.
        unsafe { self.cuDriverGetVersion(&mut version) }?;
        Ok(version)
    }

    /// Which of the two forms of `cuMemcpyBatchAsync` this driver has.
    #[inline]
    pub(crate) fn has_batches_of_13(&self) -> bool {
        self.table.cuMemcpyBatchAsync_v2.is_some()
    }

    /// Makes no error text for [`NOT_READY`], which polling loops get again and again.
    #[inline]
    pub(crate) fn stream_is_done(&self, stream: RawStream) -> crate::Result<bool> {
        // SAFETY: the caller's stream lives.
        match unsafe { (self.table.cuStreamQuery)(stream) } {
            NOT_READY => Ok(false),
            status => self.check("cuStreamQuery", status).map(|()| true),
        }
    }

    #[inline]
    fn check(&self, call: &'static str, status: Status) -> crate::Result<()> {
        if status == SUCCESS { Ok(()) } else { Err(self.error(call, status)) }
    }

    #[cold]
    fn error(&self, call: &'static str, status: Status) -> Error {
        Error::Call {
            call,
            name: self.text(self.table.cuGetErrorName, status),
            code: status,
            text: self.text(self.table.cuGetErrorString, status),
        }
    }

    fn text(&self, ask: unsafe extern "C" fn(Status, *mut *const c_char) -> Status, status: Status) -> String {
        let mut text = std::ptr::null();
        // SAFETY: writes one pointer, to a static string or null.
        if unsafe { ask(status, &mut text) } != SUCCESS || text.is_null() {
            return "unknown error".into();
        }
        // SAFETY: a static, null-terminated string of libcuda.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// As `cuda.h` has them (CUDA 12.3 to 13.0, 64 bits).
    #[test]
    fn structures_are_laid_out_as_cudas() {
        assert_eq!((size_of::<Copy2d>(), size_of::<Side2d>()), (128, 56));
        assert_eq!((offset_of!(Side2d, host), offset_of!(Copy2d, to), offset_of!(Copy2d, width)), (24, 56, 112));
        assert_eq!((size_of::<KernelNode>(), offset_of!(KernelNode, arguments)), (56, 40));
        assert_eq!((size_of::<NodeParameters>(), offset_of!(NodeParameters, condition)), (256, 16));
        assert_eq!((offset_of!(NodeParameters, graphs), offset_of!(NodeParameters, reserved_too)), (32, 248));
        assert_eq!((offset_of!(Copy3d, to), offset_of!(Copy3d, width), size_of::<Copy3d>()), (88, 176, 200));
    }
}
