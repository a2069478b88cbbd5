//! Class numbers and engine types by name.
//!
//! Source: `g_allclasses.h` and `cl2080_notification.h` of 580.105.08 without display and video classes; 595.45.04 adds no others. The VOLTA_*,
//! PASCAL_DMA_COPY_B and AMPERE_CHANNEL_GPFIFO_B numbers are from open-gpu-doc, VOLTA_COMPUTE_B is from `clc4c0.h` of 595.45.04.

pub const NV01_ROOT: u32 = 0x0;
pub const NV01_ROOT_NON_PRIV: u32 = 0x1;
pub const NV01_MEMORY_SYSTEM: u32 = 0x3e;
pub const NV01_MEMORY_LOCAL_USER: u32 = 0x40;
pub const NV01_ROOT_CLIENT: u32 = 0x41;
/// Virtual memory: an address range without memory.
pub const NV01_MEMORY_VIRTUAL: u32 = 0x70;
/// User pages, pinned.
pub const NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: u32 = 0x71;
/// Makes a descriptor readable.
pub const NV01_EVENT_OS_EVENT: u32 = 0x79;
pub const NV01_DEVICE_0: u32 = 0x80;
pub const NV20_SUBDEVICE_0: u32 = 0x2080;
pub const NV50_MEMORY_VIRTUAL: u32 = 0x50a0;
pub const FERMI_CONTEXT_SHARE_A: u32 = 0x9067;
pub const FERMI_VASPACE_A: u32 = 0x90f1;
pub const KEPLER_CHANNEL_GROUP_A: u32 = 0xa06c;
pub const KEPLER_INLINE_TO_MEMORY_B: u32 = 0xa140;
pub const VOLTA_USERMODE_A: u32 = 0xc361;
pub const VOLTA_CHANNEL_GPFIFO_A: u32 = 0xc36f;
pub const TURING_USERMODE_A: u32 = 0xc461;
pub const TURING_CHANNEL_GPFIFO_A: u32 = 0xc46f;
pub const AMPERE_USERMODE_A: u32 = 0xc561;
pub const AMPERE_CHANNEL_GPFIFO_A: u32 = 0xc56f;
pub const HOPPER_USERMODE_A: u32 = 0xc661;
/// Published, and in no chip's list of classes up to 595.45.04: GA10x and AD10x list AMPERE_CHANNEL_GPFIFO_A.
pub const AMPERE_CHANNEL_GPFIFO_B: u32 = 0xc76f;
pub const BLACKWELL_USERMODE_A: u32 = 0xc761;
pub const HOPPER_CHANNEL_GPFIFO_A: u32 = 0xc86f;
pub const HOPPER_DMA_COPY_A: u32 = 0xc8b5;
pub const BLACKWELL_CHANNEL_GPFIFO_A: u32 = 0xc96f;
pub const BLACKWELL_CHANNEL_GPFIFO_B: u32 = 0xca6f;
pub const HOPPER_SEC2_WORK_LAUNCH_A: u32 = 0xcba2;
pub const HOPPER_COMPUTE_A: u32 = 0xcbc0;
/// Tells whether confidential computing is on.
pub const NV_CONFIDENTIAL_COMPUTE: u32 = 0xcb33;
/// For the Multi-Process Service.
pub const MPS_COMPUTE: u32 = 0x900e;
/// A client's reference to a GPU instance (MIG).
pub const AMPERE_SMC_PARTITION_REF: u32 = 0xc637;

/// The class's name.
pub fn name(class: u32) -> Option<&'static str> {
    lookup(CLASSES, class)
}

/// True for a class that makes a client (the root of a tree of handles).
pub const fn is_root(class: u32) -> bool {
    matches!(class, NV01_ROOT | NV01_ROOT_NON_PRIV | NV01_ROOT_CLIENT)
}

/// True for a copy-engine class (*_DMA_COPY_*).
pub const fn is_copy(class: u32) -> bool {
    class & 0xff == 0xb5 && class >= 0xa000
}

/// True for a compute class (*_COMPUTE_*).
pub const fn is_compute(class: u32) -> bool {
    class & 0xff == 0xc0 && class >= 0xa000
}

/// Engine types: what a channel or channel group runs on (NV2080_ENGINE_TYPE).
pub mod engine {
    pub const NULL: u32 = 0;
    pub const GRAPHICS: u32 = 1;
    pub const COPY0: u32 = 9;

    /// NV2080_ENGINE_TYPE_COPY(n): ten of them follow COPY0, the rest begin at 0x34. `None` from 20 on.
    pub const fn copy(n: u32) -> Option<u32> {
        match n {
            0..10 => Some(COPY0 + n),
            10..20 => Some(0x34 + n - 10),
            _ => None,
        }
    }

    /// Which copy engine a type is.
    pub const fn copy_index(engine: u32) -> Option<u32> {
        match engine {
            9..=0x12 => Some(engine - COPY0),
            0x34..=0x3d => Some(engine - 0x34 + 10),
            _ => None,
        }
    }

    /// The engine's name, as `GRAPHICS` or `COPY2`.
    pub fn name(engine: u32) -> Option<&'static str> {
        super::lookup(ENGINES, engine)
    }

    const ENGINES: &[(u32, &str)] = &[
        (0x01, "GRAPHICS"),
        (0x02, "GR1"),
        (0x03, "GR2"),
        (0x04, "GR3"),
        (0x05, "GR4"),
        (0x06, "GR5"),
        (0x07, "GR6"),
        (0x08, "GR7"),
        (0x09, "COPY0"),
        (0x0a, "COPY1"),
        (0x0b, "COPY2"),
        (0x0c, "COPY3"),
        (0x0d, "COPY4"),
        (0x0e, "COPY5"),
        (0x0f, "COPY6"),
        (0x10, "COPY7"),
        (0x11, "COPY8"),
        (0x12, "COPY9"),
        (0x13, "NVDEC0"),
        (0x14, "NVDEC1"),
        (0x15, "NVDEC2"),
        (0x16, "NVDEC3"),
        (0x17, "NVDEC4"),
        (0x18, "NVDEC5"),
        (0x19, "NVDEC6"),
        (0x1a, "NVDEC7"),
        (0x1b, "NVENC0"),
        (0x1c, "NVENC1"),
        (0x1d, "NVENC2"),
        (0x1e, "VP"),
        (0x1f, "ME"),
        (0x20, "PPP"),
        (0x21, "MPEG"),
        (0x22, "SW"),
        (0x23, "TSEC"),
        (0x24, "VIC"),
        (0x25, "MP"),
        (0x26, "SEC2"),
        (0x27, "HOST"),
        (0x28, "DPU"),
        (0x29, "PMU"),
        (0x2a, "FBFLCN"),
        (0x2b, "NVJPEG0"),
        (0x2c, "NVJPEG1"),
        (0x2d, "NVJPEG2"),
        (0x2e, "NVJPEG3"),
        (0x2f, "NVJPEG4"),
        (0x30, "NVJPEG5"),
        (0x31, "NVJPEG6"),
        (0x32, "NVJPEG7"),
        (0x33, "OFA0"),
        (0x34, "COPY10"),
        (0x35, "COPY11"),
        (0x36, "COPY12"),
        (0x37, "COPY13"),
        (0x38, "COPY14"),
        (0x39, "COPY15"),
        (0x3a, "COPY16"),
        (0x3b, "COPY17"),
        (0x3c, "COPY18"),
        (0x3d, "COPY19"),
        (0x3e, "OFA1"),
        (0x3f, "NVENC3"),
        (0x40, "COMP_DECOMP_COPY0"),
        (0x41, "COMP_DECOMP_COPY1"),
        (0x42, "COMP_DECOMP_COPY2"),
        (0x43, "COMP_DECOMP_COPY3"),
        (0x44, "COMP_DECOMP_COPY4"),
        (0x45, "COMP_DECOMP_COPY5"),
        (0x46, "COMP_DECOMP_COPY6"),
        (0x47, "COMP_DECOMP_COPY7"),
        (0x48, "COMP_DECOMP_COPY8"),
        (0x49, "COMP_DECOMP_COPY9"),
        (0x4a, "COMP_DECOMP_COPY10"),
        (0x4b, "COMP_DECOMP_COPY11"),
        (0x4c, "COMP_DECOMP_COPY12"),
        (0x4d, "COMP_DECOMP_COPY13"),
        (0x4e, "COMP_DECOMP_COPY14"),
        (0x4f, "COMP_DECOMP_COPY15"),
        (0x50, "COMP_DECOMP_COPY16"),
        (0x51, "COMP_DECOMP_COPY17"),
        (0x52, "COMP_DECOMP_COPY18"),
        (0x53, "COMP_DECOMP_COPY19"),
    ];
}

/// Finds a number in a table sorted by number.
pub(crate) fn lookup(table: &'static [(u32, &'static str)], number: u32) -> Option<&'static str> {
    table.binary_search_by_key(&number, |e| e.0).ok().map(|i| table[i].1)
}

const CLASSES: &[(u32, &str)] = &[
    (0x0000, "NV01_ROOT"),
    (0x0001, "NV01_ROOT_NON_PRIV"),
    (0x0002, "NV01_CONTEXT_DMA"),
    (0x0004, "NV01_TIMER"),
    (0x0005, "NV01_EVENT"),
    (0x000f, "FABRIC_MANAGER_SESSION"),
    (0x0020, "NV0020_GPU_MANAGEMENT"),
    (0x0030, "NV01_NULL"),
    (0x003e, "NV01_MEMORY_SYSTEM"),
    (0x003f, "NV01_MEMORY_LOCAL_PRIVILEGED"),
    (0x0040, "NV01_MEMORY_LOCAL_USER"),
    (0x0041, "NV01_ROOT_CLIENT"),
    (0x0042, "NV_MEMORY_EXTENDED_USER"),
    (0x0050, "NV_CE_UTILS"),
    (0x0060, "NV0060_SYNC_GPU_BOOST"),
    (0x0070, "NV01_MEMORY_VIRTUAL"),
    (0x0071, "NV01_MEMORY_SYSTEM_OS_DESCRIPTOR"),
    (0x0076, "NV01_MEMORY_FRAMEBUFFER_CONSOLE"),
    (0x0078, "NV01_EVENT_KERNEL_CALLBACK"),
    (0x0079, "NV01_EVENT_OS_EVENT"),
    (0x007d, "NV04_SOFTWARE_TEST"),
    (0x007e, "NV01_EVENT_KERNEL_CALLBACK_EX"),
    (0x0080, "NV01_DEVICE_0"),
    (0x0081, "NV01_MEMORY_LIST_SYSTEM"),
    (0x0082, "NV01_MEMORY_LIST_FBMEM"),
    (0x0083, "NV01_MEMORY_LIST_OBJECT"),
    (0x0090, "KERNEL_GRAPHICS_CONTEXT"),
    (0x0092, "NV0092_RG_LINE_CALLBACK"),
    (0x00b1, "NV01_MEMORY_HW_RESOURCES"),
    (0x00c2, "NV01_MEMORY_LOCAL_PHYSICAL"),
    (0x00c3, "NV01_MEMORY_SYNCPOINT"),
    (0x00da, "NV_SEMAPHORE_SURFACE"),
    (0x00db, "NV40_DEBUG_BUFFER"),
    (0x00de, "RM_USER_SHARED_DATA"),
    (0x00e0, "NV_MEMORY_EXPORT"),
    (0x00f1, "NV_IMEX_SESSION"),
    (0x00f2, "IO_VASPACE_A"),
    (0x00f3, "NV01_MEMORY_FLA"),
    (0x00f8, "NV_MEMORY_FABRIC"),
    (0x00f9, "NV_MEMORY_FABRIC_IMPORT_V2"),
    (0x00fb, "NV_MEMORY_FABRIC_IMPORTED_REF"),
    (0x00fc, "FABRIC_VASPACE_A"),
    (0x00fd, "NV_MEMORY_MULTICAST_FABRIC"),
    (0x00fe, "NV_MEMORY_MAPPER"),
    (0x2080, "NV20_SUBDEVICE_0"),
    (0x2081, "NV2081_BINAPI"),
    (0x2082, "NV2082_BINAPI_PRIVILEGED"),
    (0x208f, "NV20_SUBDEVICE_DIAG"),
    (0x30f1, "NV30_GSYNC"),
    (0x402c, "NV40_I2C"),
    (0x503b, "NV50_P2P"),
    (0x503c, "NV50_THIRD_PARTY_P2P"),
    (0x506f, "NV50_CHANNEL_GPFIFO"),
    (0x5080, "NV50_DEFERRED_API_CLASS"),
    (0x50a0, "NV50_MEMORY_VIRTUAL"),
    (0x83de, "GT200_DEBUGGER"),
    (0x844c, "G84_PERFBUFFER"),
    (0x900e, "MPS_COMPUTE"),
    (0x9010, "NV9010_VBLANK_CALLBACK"),
    (0x902d, "FERMI_TWOD_A"),
    (0x9067, "FERMI_CONTEXT_SHARE_A"),
    (0x906f, "GF100_CHANNEL_GPFIFO"),
    (0x9072, "GF100_DISP_SW"),
    (0x9074, "GF100_TIMED_SEMAPHORE_SW"),
    (0x9096, "GF100_ZBC_CLEAR"),
    (0x90cc, "GF100_PROFILER"),
    (0x90cd, "NV_EVENT_BUFFER"),
    (0x90ce, "NV01_MEMORY_DEVICELESS"),
    (0x90e6, "GF100_SUBDEVICE_MASTER"),
    (0x90e7, "GF100_SUBDEVICE_INFOROM"),
    (0x90ec, "GF100_HDACODEC"),
    (0x90f1, "FERMI_VASPACE_A"),
    (0xa06c, "KEPLER_CHANNEL_GROUP_A"),
    (0xa06f, "KEPLER_CHANNEL_GPFIFO_A"),
    (0xa080, "KEPLER_DEVICE_VGPU"),
    (0xa081, "NVA081_VGPU_CONFIG"),
    (0xa084, "NVA084_KERNEL_HOST_VGPU_DEVICE"),
    (0xa0bc, "NVENC_SW_SESSION"),
    (0xa0bd, "NVFBC_SW_SESSION"),
    (0xa140, "KEPLER_INLINE_TO_MEMORY_B"),
    (0xa16f, "KEPLER_CHANNEL_GPFIFO_B"),
    (0xb06f, "MAXWELL_CHANNEL_GPFIFO_A"),
    (0xb0b5, "MAXWELL_DMA_COPY_A"),
    (0xb0cc, "MAXWELL_PROFILER"),
    (0xb1cc, "MAXWELL_PROFILER_CONTEXT"),
    (0xb2cc, "MAXWELL_PROFILER_DEVICE"),
    (0xc06f, "PASCAL_CHANNEL_GPFIFO_A"),
    (0xc076, "GP100_UVM_SW"),
    (0xc0b5, "PASCAL_DMA_COPY_A"),
    (0xc1b5, "PASCAL_DMA_COPY_B"),
    (0xc361, "VOLTA_USERMODE_A"),
    (0xc365, "ACCESS_COUNTER_NOTIFY_BUFFER"),
    (0xc369, "MMU_FAULT_BUFFER"),
    (0xc36f, "VOLTA_CHANNEL_GPFIFO_A"),
    (0xc397, "VOLTA_A"),
    (0xc3b5, "VOLTA_DMA_COPY_A"),
    (0xc3c0, "VOLTA_COMPUTE_A"),
    (0xc461, "TURING_USERMODE_A"),
    (0xc46f, "TURING_CHANNEL_GPFIFO_A"),
    (0xc4c0, "VOLTA_COMPUTE_B"),
    (0xc561, "AMPERE_USERMODE_A"),
    (0xc56f, "AMPERE_CHANNEL_GPFIFO_A"),
    (0xc574, "UVM_CHANNEL_RETAINER"),
    (0xc597, "TURING_A"),
    (0xc5b5, "TURING_DMA_COPY_A"),
    (0xc5c0, "TURING_COMPUTE_A"),
    (0xc637, "AMPERE_SMC_PARTITION_REF"),
    (0xc638, "AMPERE_SMC_EXEC_PARTITION_REF"),
    (0xc639, "AMPERE_SMC_CONFIG_SESSION"),
    (0xc640, "AMPERE_SMC_MONITOR_SESSION"),
    (0xc661, "HOPPER_USERMODE_A"),
    (0xc697, "AMPERE_A"),
    (0xc6b5, "AMPERE_DMA_COPY_A"),
    (0xc6c0, "AMPERE_COMPUTE_A"),
    (0xc761, "BLACKWELL_USERMODE_A"),
    (0xc763, "MMU_VIDMEM_ACCESS_BIT_BUFFER"),
    (0xc76f, "AMPERE_CHANNEL_GPFIFO_B"),
    (0xc797, "AMPERE_B"),
    (0xc7b5, "AMPERE_DMA_COPY_B"),
    (0xc7c0, "AMPERE_COMPUTE_B"),
    (0xc863, "HOPPER_MMU_VIDMEM_ACCESS_BIT_BUFFER"),
    (0xc86f, "HOPPER_CHANNEL_GPFIFO_A"),
    (0xc8b5, "HOPPER_DMA_COPY_A"),
    (0xc96f, "BLACKWELL_CHANNEL_GPFIFO_A"),
    (0xc997, "ADA_A"),
    (0xc9b5, "BLACKWELL_DMA_COPY_A"),
    (0xc9c0, "ADA_COMPUTE_A"),
    (0xca6f, "BLACKWELL_CHANNEL_GPFIFO_B"),
    (0xcab5, "BLACKWELL_DMA_COPY_B"),
    (0xcb33, "NV_CONFIDENTIAL_COMPUTE"),
    (0xcb97, "HOPPER_A"),
    (0xcba2, "HOPPER_SEC2_WORK_LAUNCH_A"),
    (0xcbc0, "HOPPER_COMPUTE_A"),
    (0xcbca, "NV_COUNTER_COLLECTION_UNIT"),
    (0xcd40, "BLACKWELL_INLINE_TO_MEMORY_A"),
    (0xcd97, "BLACKWELL_A"),
    (0xcdc0, "BLACKWELL_COMPUTE_A"),
    (0xce97, "BLACKWELL_B"),
    (0xcec0, "BLACKWELL_COMPUTE_B"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number() {
        for (c, n) in [
            (HOPPER_CHANNEL_GPFIFO_A, "HOPPER_CHANNEL_GPFIFO_A"),
            (NV01_ROOT, "NV01_ROOT"),
            (NV01_MEMORY_LOCAL_USER, "NV01_MEMORY_LOCAL_USER"),
            (KEPLER_CHANNEL_GROUP_A, "KEPLER_CHANNEL_GROUP_A"),
            (HOPPER_DMA_COPY_A, "HOPPER_DMA_COPY_A"),
            (BLACKWELL_USERMODE_A, "BLACKWELL_USERMODE_A"),
        ] {
            assert_eq!(name(c), Some(n));
        }
        assert_eq!(name(0xdead), None);
        assert!(CLASSES.windows(2).all(|w| w[0].0 < w[1].0));
    }

    #[test]
    fn every_class_of_channels_is_taken_for_one() {
        let channels = CLASSES.iter().filter(|(class, name)| *class >= 0xa06f && name.contains("_CHANNEL_GPFIFO_"));
        let taken: Vec<u32> =
            channels.map(|(class, _)| *class).filter(|class| crate::abi::is_channel_class(*class)).collect();
        assert_eq!(
            taken,
            [0xa06f, 0xa16f, 0xb06f, 0xc06f, 0xc36f, 0xc46f, 0xc56f, 0xc76f, 0xc86f, 0xc96f, 0xca6f],
            "a channel of another class would be recorded as an object without a ring"
        );
    }

    #[test]
    fn engines_count_on_after_copy9() {
        assert_eq!(engine::name(1), Some("GRAPHICS"));
        for n in 0..20 {
            let e = engine::copy(n).unwrap();
            assert_eq!(engine::name(e), Some(format!("COPY{n}").as_str()));
            assert_eq!(engine::copy_index(e), Some(n));
        }
        assert_eq!(engine::copy(20), None);
        assert_eq!(engine::copy_index(engine::GRAPHICS), None);
    }
}
