//! RM_CONTROL.

use super::card::{GPU_ID, UUID};
use super::objects::{Kind, Object};
use super::{File, Machine};
use crate::status::{self, Outcome};
use rm::abi::control::{
    AttachIds, AttachedIds, Bind, CE_ALL_CAPS, CE_PCE_MASK, CHANNEL_BIND, CHANNEL_SCHEDULE, CLASS_LIST, CLASS_LIST_V2,
    CONFIDENTIAL_CAPABILITIES, CTRL_WORK_SUBMIT_TOKEN, CeAllCaps, CePceMask, ClassList, ConfidentialCapabilities,
    GID_INFO, GPU_ATTACH_IDS, GPU_ATTACHED_IDS, GPU_ID_INFO_V2, GPU_PROBED_IDS, GROUP_SCHEDULE, GidInfo, GpuIdInfo,
    HANDLE_INFO, HandleInfo, STATIC_BAR1_INFO, StaticBar1Info, WorkSubmitToken, ce_caps,
};
use rm::abi::{Nvos54, Plain, Shape, control};
use rm::class;

/// What GET_CLASSLIST answers: GH100's classes, as far as they are modelled.
pub const CLASSES: [u32; 11] = [
    class::VOLTA_USERMODE_A,
    class::VOLTA_CHANNEL_GPFIFO_A,
    class::TURING_USERMODE_A,
    class::TURING_CHANNEL_GPFIFO_A,
    class::AMPERE_USERMODE_A,
    class::AMPERE_CHANNEL_GPFIFO_A,
    class::HOPPER_USERMODE_A,
    class::HOPPER_CHANNEL_GPFIFO_A,
    class::HOPPER_DMA_COPY_A,
    class::HOPPER_COMPUTE_A,
    class::KEPLER_INLINE_TO_MEMORY_B,
];

/// Copy engines of an H100.
const COPY_ENGINES: u32 = 10;
/// The number of copy engines that belong to graphics; they are first.
const GRAPHICS_COPY_ENGINES: u32 = 2;
const NO_ID: u32 = u32::MAX;

/// NVC36F_CTRL_CMD_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX takes an index; NV0080 number of sub-devices.
const NUM_SUBDEVICES: u32 = 0x80_0280;

/// The control's parameters in the caller's memory.
struct Params {
    at: u64,
    size: u32,
}

impl Params {
    /// The same for a struct of the driver's branch.
    fn with_shape<T: Plain>(&self, shape: &Shape<T>, change: impl FnOnce(&mut T) -> Outcome) -> Outcome {
        if shape.size() == 0 {
            return Err(status::NOT_SUPPORTED);
        }
        if self.at == 0 || self.size as usize != shape.size() {
            return Err(status::INVALID_PARAM_STRUCT);
        }
        // SAFETY: the caller of the ioctl promises that params points to `size` bytes, the struct's size as just compared.
        unsafe { super::with_shape(self.at as *mut u8, shape, change) }
    }

    /// Reads the parameters, lets `change` work on them, and writes them back. A size other than the command's is refused.
    fn with<T: Plain>(&self, change: impl FnOnce(&mut T) -> Outcome) -> Outcome {
        if self.at == 0 || self.size as usize != size_of::<T>() {
            return Err(status::INVALID_PARAM_STRUCT);
        }
        // SAFETY: the caller of the ioctl promises that params points to `size` bytes, the struct's size as just compared.
        let mut value = unsafe { (self.at as *const T).read_unaligned() };
        change(&mut value)?;
        // SAFETY: as above.
        unsafe { (self.at as *mut T).write_unaligned(value) };
        Ok(())
    }
}

impl Machine {
    pub(super) fn control(&self, file: &File, call: &mut Nvos54) -> i32 {
        call.status = status::of(self.run_control(file, call));
        0
    }

    /// The current answer to GET_CLASSLIST.
    fn classes(&self) -> [u32; CLASSES.len()] {
        let compute = self.runlists.plot.compute_class().unwrap_or(class::HOPPER_COMPUTE_A);
        CLASSES.map(|class| if class == class::HOPPER_COMPUTE_A { compute } else { class })
    }

    fn run_control(&self, file: &File, call: &Nvos54) -> Outcome {
        let kind = {
            let mut objects = poison::ignore(self.objects.lock());
            objects.client(call.client, Self::control_of(file))?;
            match call.object {
                object if object == call.client => None,
                object => {
                    let Object { kind, .. } = objects.object(call.client, object)?;
                    Some(kind.clone())
                }
            }
        };
        let params = Params { at: call.params, size: call.params_size };
        let layouts = &self.branch.layouts;
        match (call.cmd, kind) {
            (control::BUILD_VERSION_V2, None) => params.with_shape(&layouts.build_version, |p| {
                let version = self.version.as_bytes();
                p.driver_version[..version.len()].copy_from_slice(version);
                p.version[..version.len()].copy_from_slice(version);
                Ok(())
            }),
            (GPU_ATTACHED_IDS, None) => params.with(|p: &mut AttachedIds| {
                p.gpu_ids = [NO_ID; 32];
                p.gpu_ids[0] = GPU_ID;
                Ok(())
            }),
            (GPU_PROBED_IDS, None) => params.with_shape(&layouts.probed_ids, |p| {
                p.gpu_ids = [NO_ID; 32];
                p.excluded = [NO_ID; 32];
                p.gpu_ids[0] = GPU_ID;
                Ok(())
            }),
            (GPU_ATTACH_IDS, None) => params.with(|_: &mut AttachIds| Ok(())),
            (GPU_ID_INFO_V2, None) => params.with(|p: &mut GpuIdInfo| {
                if p.gpu_id != GPU_ID {
                    return Err(status::INVALID_ARGUMENT);
                }
                *p = GpuIdInfo { gpu_id: GPU_ID, numa_id: -1, ..GpuIdInfo::zeroed() };
                Ok(())
            }),
            (HANDLE_INFO, None) => params.with(|p: &mut HandleInfo| {
                let (class, parent) = poison::ignore(self.objects.lock()).described(call.client, p.object)?;
                p.result = match p.index {
                    HandleInfo::PARENT => parent.into(),
                    HandleInfo::CLASS => class.into(),
                    _ => return Err(status::INVALID_ARGUMENT),
                };
                Ok(())
            }),
            (rm::abi::control::GPU_ID, Some(Kind::Subdevice)) => params.with(|p: &mut u32| {
                *p = GPU_ID;
                Ok(())
            }),
            (CLASS_LIST, Some(Kind::Device)) => params.with(|p| class_list(p, &self.classes())),
            (CLASS_LIST_V2, Some(Kind::Device)) => params.with_shape(&layouts.class_list_v2, |p| {
                p.count = CLASSES.len() as u32;
                p.classes[..CLASSES.len()].copy_from_slice(&self.classes());
                Ok(())
            }),
            (CONFIDENTIAL_CAPABILITIES, Some(Kind::Confidential)) => params.with(|p: &mut ConfidentialCapabilities| {
                p.feature = u8::from(self.runlists.plot.is_confidential());
                Ok(())
            }),
            (NUM_SUBDEVICES, Some(Kind::Device)) => params.with(|p: &mut u32| {
                *p = 1;
                Ok(())
            }),
            (GID_INFO, Some(Kind::Subdevice)) => params.with(gid),
            (CE_ALL_CAPS, Some(Kind::Subdevice)) => params.with_shape(&layouts.ce_all_caps, |p| {
                *p = CeAllCaps::zeroed();
                p.present = (1 << COPY_ENGINES) - 1;
                for number in 0..COPY_ENGINES {
                    p.caps[number as usize] = copy_caps(number).to_le_bytes();
                }
                Ok(())
            }),
            (CE_PCE_MASK, Some(Kind::Subdevice)) => params.with(|p: &mut CePceMask| {
                match crate::engine::Engine::of_type(p.engine_type) {
                    Some(crate::engine::Engine::Copy(number)) => p.mask = physical(number),
                    _ => return Err(status::NOT_SUPPORTED),
                }
                Ok(())
            }),
            (STATIC_BAR1_INFO, Some(Kind::Subdevice)) => params.with_shape(&layouts.static_bar1, |p| {
                *p = StaticBar1Info::zeroed();
                Ok(())
            }),
            (CTRL_WORK_SUBMIT_TOKEN, Some(Kind::Channel { channel, .. })) => params.with(|p: &mut WorkSubmitToken| {
                p.token = channel.token;
                Ok(())
            }),
            (control::SET_TOKEN_NOTIF_INDEX, Some(Kind::Channel { .. })) => params.with(|_: &mut u32| Ok(())),
            (CHANNEL_BIND, Some(Kind::Channel { channel, .. })) => params.with(|p: &mut Bind| {
                let engine = crate::engine::Engine::of_type(p.engine_type);
                if engine == Some(channel.engine) { Ok(()) } else { Err(status::INVALID_ARGUMENT) }
            }),
            (CHANNEL_SCHEDULE, Some(Kind::Channel { channel, group })) => params.with_shape(&layouts.schedule, |p| {
                if p.enable != 0 {
                    *poison::ignore(group.scheduled.lock()) = true;
                    return self.schedule(&channel);
                }
                self.unschedule(&channel);
                Ok(())
            }),
            (GROUP_SCHEDULE, Some(Kind::Group(group))) => params.with_shape(&layouts.schedule, |p| {
                *poison::ignore(group.scheduled.lock()) = p.enable != 0;
                let channels: Vec<_> =
                    poison::ignore(group.channels.lock()).iter().filter_map(std::sync::Weak::upgrade).collect();
                for channel in &channels {
                    if p.enable != 0 {
                        self.schedule(channel)?;
                    } else {
                        self.unschedule(channel);
                    }
                }
                Ok(())
            }),
            _ => Err(status::NOT_SUPPORTED),
        }
    }
}

/// The physical engines of a copy engine. Graphics copy engines do not have separate ones: they use those of the next two engines. The fifth has the most, as
/// on an H200.
fn physical(number: u32) -> u32 {
    match number {
        ..GRAPHICS_COPY_ENGINES => 1 << (number + GRAPHICS_COPY_ENGINES),
        4 => 0x7000 | 1 << number,
        _ => 1 << number,
    }
}

fn copy_caps(number: u32) -> u16 {
    let mut caps = ce_caps::SYSMEM
        | ce_caps::P2P
        | ce_caps::BL_SIZE_GT_64K_SUPPORTED
        | ce_caps::SUPPORTS_NONPIPELINED_BL
        | ce_caps::SUPPORTS_PIPELINED_BL;
    if number < GRAPHICS_COPY_ENGINES {
        caps |= ce_caps::GRCE;
    }
    if (0..COPY_ENGINES).any(|other| other != number && physical(other) & physical(number) != 0) {
        caps |= ce_caps::SHARED;
    }
    caps
}

/// Without a list it returns the number of classes; with one it fills `count` of them.
fn class_list(params: &mut ClassList, classes: &[u32; CLASSES.len()]) -> Outcome {
    if params.list == 0 {
        params.count = CLASSES.len() as u32;
        return Ok(());
    }
    let count = (params.count as usize).min(CLASSES.len());
    // SAFETY: the caller promises that `list` points to `count` words.
    unsafe { std::ptr::copy_nonoverlapping(classes.as_ptr().cast::<u8>(), params.list as *mut u8, count * 4) };
    Ok(())
}

fn gid(params: &mut GidInfo) -> Outcome {
    if params.index != 0 {
        return Err(status::INVALID_ARGUMENT);
    }
    if params.flags & 2 != 0 {
        params.length = UUID.len() as u32;
        params.data[..UUID.len()].copy_from_slice(&UUID);
        return Ok(());
    }
    let hex: String = UUID
        .iter()
        .enumerate()
        .map(|(i, byte)| format!("{}{byte:02x}", if matches!(i, 4 | 6 | 8 | 10) { "-" } else { "" }))
        .collect();
    let text = format!("GPU-{hex}\0");
    params.length = text.len() as u32;
    params.data[..text.len()].copy_from_slice(text.as_bytes());
    Ok(())
}
