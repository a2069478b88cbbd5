//! The structs and numbers of `rm` against what the driver's own headers say (`abi.tsv`), and against a second source (`gvisor.tsv`).
//!
//! Some check here must look at every row of a table: a row that no check compares fails the test.

use rm::abi::{self, BRANCHES, Branch, Layouts, Plain, Shape, control, nr, rm_request, uvm};
use rm::call::{Call, FileKind, HeapOp};
use std::cell::Cell;
use std::mem::{offset_of, size_of};

struct Row {
    branches: Vec<&'static str>,
    kind: &'static str,
    name: &'static str,
    member: &'static str,
    value: u64,
    size: u64,
    seen: Cell<bool>,
}

struct Table {
    rows: Vec<Row>,
    /// The table has only some of the structs and members. Those that it never names are not compared.
    partial: bool,
}

impl Table {
    fn headers() -> Table {
        let table = Table::load(include_str!("abi.tsv"), false);
        let compiled = BRANCHES.iter().filter(|b| b.source == abi::Source::Headers);
        assert!(compiled.clone().all(|b| table.branches().any(|of| of.number == b.number)));
        table
    }

    fn gvisor() -> Table {
        let table = Table::load(include_str!("gvisor.tsv"), true);
        assert!(table.branches().count() > 10);
        table
    }

    fn load(text: &'static str, partial: bool) -> Table {
        let number = |s: &str| match s.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
            None => s.parse().unwrap(),
        };
        let lines = text.lines().filter(|l| !l.starts_with('#'));
        let rows = lines.map(|line| {
            let c: Vec<&'static str> = line.split('\t').collect();
            Row {
                branches: c[0].split(' ').collect(),
                kind: c[1],
                name: c[2],
                member: c[3],
                value: number(c[4]),
                size: number(c[5]),
                seen: Cell::new(false),
            }
        });
        Table { rows: rows.collect(), partial }
    }

    /// The branches that the table has.
    fn branches(&self) -> impl Iterator<Item = &'static Branch> {
        BRANCHES.iter().filter(|b| self.rows.iter().any(|r| r.branches.contains(&&*b.number.to_string())))
    }

    /// Whether a check compares this: all that a whole table should have, or what a partial one has for some branch.
    fn compares(&self, kind: &str, name: &str, member: &str) -> bool {
        !self.partial || self.rows.iter().any(|r| (r.kind, r.name, r.member) == (kind, name, member))
    }

    /// The row for a branch, marked as looked at.
    fn row(&self, branch: &str, kind: &str, name: &str, member: &str) -> &Row {
        let row = self.row_if_any(branch, kind, name, member);
        row.unwrap_or_else(|| panic!("no {kind} {name} {member} for {branch}"))
    }

    /// The row for a branch, if it has one, marked as looked at.
    fn row_if_any(&self, branch: &str, kind: &str, name: &str, member: &str) -> Option<&Row> {
        let row = self
            .rows
            .iter()
            .find(|r| r.branches.contains(&branch) && (r.kind, r.name, r.member) == (kind, name, member));
        row.inspect(|row| row.seen.set(true))
    }

    /// A struct that differs by branch: `fields` are the offsets in the full declaration.
    fn shaped<T: Plain>(&self, name: &str, shape: impl Fn(&Layouts) -> Shape<T>, fields: &[(&str, usize, usize)]) {
        for branch in self.branches().filter(|_| self.compares("struct", name, "-")) {
            let (shape, b) = (shape(&branch.layouts), branch.number.to_string());
            let size = self.row_if_any(&b, "struct", name, "-").map_or(0, |row| row.size);
            assert_eq!(size, shape.size() as u64, "{b} {name}");
            for (member, offset, size) in fields.iter().filter(|f| self.compares("field", name, f.0)) {
                let size = (*offset..offset + size).filter(|at| shape.offset(*at).is_some()).count();
                let row = self.row_if_any(&b, "field", name, member).map(|row| (row.value, row.size));
                let declared = shape.offset(*offset).map(|at| (at as u64, size as u64));
                assert_eq!(row, declared, "{b} {name}.{member}");
            }
        }
    }

    /// A struct that is the same in every branch. Values that could not be found for an unverified branch have no row.
    fn same(&self, name: &str, size: usize, fields: &[(&str, usize, usize)]) {
        for branch in self.branches().filter(|_| self.compares("struct", name, "-")) {
            let b = branch.number.to_string();
            if branch.source == rm::abi::Source::Unverified && self.row_if_any(&b, "struct", name, "-").is_none() {
                continue;
            }
            assert_eq!(self.row(&b, "struct", name, "-").size, size as u64, "{b} {name}");
            for (member, offset, size) in fields.iter().filter(|f| self.compares("field", name, f.0)) {
                let r = self.row(&b, "field", name, member);
                assert_eq!((r.value, r.size), (*offset as u64, *size as u64), "{b} {name}.{member}");
            }
        }
    }

    fn finish(&self, kinds: &[&str]) {
        for r in self.rows.iter().filter(|r| kinds.contains(&r.kind) && r.name != "NVOS32_PARAMETERS") {
            assert!(r.seen.get(), "nobody compares {:?} {} {}", r.branches, r.name, r.member);
        }
    }
}

/// Members of the header's struct and doorbell's fields: name, offset, size.
macro_rules! fields {
    ($ty:path { $($member:literal => $($field:ident).+,)* }) => {{
        let v = <$ty as Plain>::zeroed();
        [$(($member, offset_of!($ty, $($field).+), size_of_val(&v.$($field).+))),*]
    }};
}
/// A struct of every branch.
macro_rules! same {
    ($t:expr, $name:expr, $ty:path { $($fields:tt)* }) => {
        $t.same($name, size_of::<$ty>(), &fields!($ty { $($fields)* }))
    };
}
/// A struct that differs: which layout it is.
macro_rules! shaped {
    ($t:expr, $layout:ident, $name:literal, $ty:path { $($fields:tt)* }) => {
        $t.shaped::<$ty>($name, |layouts| layouts.$layout, &fields!($ty { $($fields)* }))
    };
}

#[test]
fn structs_lie_as_in_the_headers() {
    let t = Table::headers();
    assert!(t.rows.len() > 400);
    compare_structs(&t);
    // In older branches that byte is padding.
    for b in ["580", "590", "595", "610"] {
        let row = t.row(b, "field", "NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS", "bStaticBar1WriteCombined");
        assert_eq!(row.value, offset_of!(control::StaticBar1Info, write_combined) as u64);
    }
    t.finish(&["struct", "field"]);
}

#[test]
fn every_branch_has_facts_of_its_own() {
    let (headers, gvisor) = (Table::headers(), Table::gvisor());
    for branch in &BRANCHES {
        let is_there = |t: &Table| t.branches().any(|b| b.number == branch.number);
        assert!(is_there(&headers) || is_there(&gvisor), "{} is in neither table", branch.number);
    }
    // What no headers say is named by the second source.
    for branch in BRANCHES.iter().filter(|b| b.source == abi::Source::Unverified) {
        let first = versions_of_gvisor().find(|(of, _)| *of == branch.number);
        assert_eq!(first, Some((branch.number, branch.first)), "gvisor.tsv, `# versions`");
    }
}

#[test]
fn structs_lie_as_in_gvisor() {
    let t = Table::gvisor();
    compare_structs(&t);
    t.finish(&["struct", "field"]);
}

fn compare_structs(t: &Table) {
    same!(t, "NVOS00_PARAMETERS", abi::Nvos00 {
        "hRoot" => root,
        "hObjectParent" => parent,
        "hObjectOld" => old,
        "status" => status,
    });
    same!(t, "nv_ioctl_nvos02_parameters_with_fd", abi::Nvos02Fd {
        "params.hRoot" => root,
        "params.hObjectParent" => parent,
        "params.hObjectNew" => new,
        "params.hClass" => class,
        "params.flags" => flags,
        "params.pMemory" => memory,
        "params.limit" => limit,
        "params.status" => status,
        "fd" => fd,
    });
    same!(t, "NVOS21_PARAMETERS", abi::Nvos21 {
        "hRoot" => root,
        "hObjectParent" => parent,
        "hObjectNew" => new,
        "hClass" => class,
        "pAllocParms" => params,
        "paramsSize" => params_size,
        "status" => status,
    });
    same!(t, "NVOS64_PARAMETERS", abi::Nvos64 {
        "hRoot" => root,
        "hObjectParent" => parent,
        "hObjectNew" => new,
        "hClass" => class,
        "pAllocParms" => params,
        "pRightsRequested" => rights,
        "paramsSize" => params_size,
        "flags" => flags,
        "status" => status,
    });
    same!(t, "nv_ioctl_nvos33_parameters_with_fd", abi::Nvos33Fd {
        "params.hClient" => client,
        "params.hDevice" => device,
        "params.hMemory" => memory,
        "params.offset" => offset,
        "params.length" => length,
        "params.pLinearAddress" => linear,
        "params.status" => status,
        "params.flags" => flags,
        "fd" => fd,
    });
    same!(t, "NVOS34_PARAMETERS", abi::Nvos34 {
        "hClient" => client,
        "hDevice" => device,
        "hMemory" => memory,
        "pLinearAddress" => linear,
        "status" => status,
        "flags" => flags,
    });
    shaped!(t, unmap_dma, "NVOS47_PARAMETERS", abi::Nvos47 {
        "hClient" => client,
        "hDevice" => device,
        "hDma" => dma,
        "hMemory" => memory,
        "flags" => flags,
        "dmaOffset" => dma_offset,
        "size" => size,
        "status" => status,
    });
    same!(t, "NVOS54_PARAMETERS", abi::Nvos54 {
        "hClient" => client,
        "hObject" => object,
        "cmd" => cmd,
        "flags" => flags,
        "params" => params,
        "paramsSize" => params_size,
        "status" => status,
    });
    same!(t, "NVOS55_PARAMETERS", abi::Nvos55 {
        "hClient" => client,
        "hParent" => parent,
        "hObject" => object,
        "hClientSrc" => client_src,
        "hObjectSrc" => object_src,
        "flags" => flags,
        "status" => status,
    });
    same!(t, "nv_ioctl_register_fd_t", abi::RegisterFd {
        "ctl_fd" => ctl_fd,
    });
    for name in ["nv_ioctl_alloc_os_event_t", "nv_ioctl_free_os_event_t"] {
        same!(t, name, abi::OsEvent {
            "hClient" => client,
            "hDevice" => device,
            "fd" => fd,
            "Status" => status,
        });
    }
    same!(t, "nv_ioctl_card_info_t", abi::CardInfo {
        "valid" => valid,
        "pci_info.domain" => domain,
        "pci_info.bus" => bus,
        "pci_info.slot" => slot,
        "pci_info.function" => function,
        "pci_info.vendor_id" => vendor_id,
        "pci_info.device_id" => device_id,
        "gpu_id" => gpu_id,
        "interrupt_line" => interrupt_line,
        "reg_address" => reg_address,
        "reg_size" => reg_size,
        "fb_address" => fb_address,
        "fb_size" => fb_size,
        "minor_number" => minor,
        "dev_name" => dev_name,
    });
    same!(t, "nv_ioctl_rm_api_version_t", abi::CheckVersion {
        "cmd" => cmd,
        "reply" => reply,
        "versionString" => version,
    });
    same!(t, "NV0005_ALLOC_PARAMETERS", abi::EventAlloc {
        "hParentClient" => parent_client,
        "hSrcResource" => source,
        "hClass" => class,
        "notifyIndex" => notify_index,
        "data" => data,
    });
    same!(t, "NV0080_ALLOC_PARAMETERS", abi::DeviceAlloc {
        "deviceId" => device_id,
        "hClientShare" => client_share,
        "hTargetClient" => target_client,
        "hTargetDevice" => target_device,
        "flags" => flags,
        "vaSpaceSize" => va_space_size,
        "vaStartInternal" => va_start_internal,
        "vaLimitInternal" => va_limit_internal,
        "vaMode" => va_mode,
    });
    same!(t, "NV2080_ALLOC_PARAMETERS", abi::SubdeviceAlloc {
        "subDeviceId" => subdevice_id,
    });
    shaped!(t, memory_alloc, "NV_MEMORY_ALLOCATION_PARAMS", abi::MemoryAlloc {
        "owner" => owner,
        "type" => kind,
        "flags" => flags,
        "width" => width,
        "height" => height,
        "pitch" => pitch,
        "attr" => attr,
        "attr2" => attr2,
        "format" => format,
        "comprCovg" => compression_coverage,
        "zcullCovg" => zcull_coverage,
        "rangeLo" => range_lo,
        "rangeHi" => range_hi,
        "size" => size,
        "alignment" => alignment,
        "offset" => offset,
        "limit" => limit,
        "address" => address,
        "ctagOffset" => ctag_offset,
        "hVASpace" => va_space,
        "internalflags" => internal_flags,
        "tag" => tag,
        "numaNode" => numa_node,
    });
    same!(t, "NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS", abi::ChannelGroupAlloc {
        "hObjectError" => error_object,
        "hObjectEccError" => ecc_error_object,
        "hVASpace" => va_space,
        "engineType" => engine_type,
        "bIsCallingContextVgpuPlugin" => vgpu_plugin,
    });
    same!(t, "NV_CTXSHARE_ALLOCATION_PARAMETERS", abi::ContextShareAlloc {
        "hVASpace" => va_space,
        "flags" => flags,
        "subctxId" => subcontext,
    });
    same!(t, "NV_MEMORY_DESC_PARAMS", abi::MemoryDesc {
        "base" => base,
        "size" => size,
        "addressSpace" => address_space,
        "cacheAttrib" => cache_attrib,
    });
    shaped!(t, channel_alloc, "NV_CHANNEL_ALLOC_PARAMS", abi::ChannelAllocFull {
        "hObjectError" => client.error_object,
        "hObjectBuffer" => client.buffer_object,
        "gpFifoOffset" => client.gpfifo,
        "gpFifoEntries" => client.entries,
        "flags" => client.flags,
        "hContextShare" => client.context_share,
        "hVASpace" => client.va_space,
        "hHandleVASpace" => client.handle_va_space,
        "hUserdMemory" => client.userd_memory,
        "userdOffset" => client.userd_offset,
        "engineType" => client.engine_type,
        "cid" => client.cid,
        "subDeviceId" => subdevice_mask,
        "hObjectEccError" => ecc_error_object,
        "instanceMem" => instance,
        "userdMem" => userd,
        "ramfcMem" => ramfc,
        "mthdbufMem" => method_buffer,
        "hPhysChannelGroup" => phys_channel_group,
        "internalFlags" => internal_flags,
        "errorNotifierMem" => error_notifier,
        "eccErrorNotifierMem" => ecc_error_notifier,
        "ProcessID" => process_id,
        "SubProcessID" => sub_process_id,
        "encryptIv" => encrypt_iv,
        "decryptIv" => decrypt_iv,
        "hmacNonce" => hmac_nonce,
        "tpcConfigID" => tpc_config_id,
    });
    same!(t, "NVB0B5_ALLOCATION_PARAMETERS", abi::CopyAlloc {
        "version" => version,
        "engineType" => engine_type,
    });
    same!(t, "NV_HOPPER_USERMODE_A_PARAMS", abi::UsermodeAlloc {
        "bBar1Mapping" => bar1,
        "bPriv" => privileged,
    });
    same!(t, "NvNotification", abi::Notification {
        "timeStamp" => time,
        "info32" => info32,
        "info16" => info16,
        "status" => status,
    });
    same!(t, "NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS", control::WorkSubmitToken {
        "workSubmitToken" => token,
    });
    same!(t, "NVA06F_CTRL_BIND_PARAMS", control::Bind {
        "engineType" => engine_type,
    });
    same!(t, "NV0000_CTRL_GPU_GET_ATTACHED_IDS_PARAMS", control::AttachedIds {
        "gpuIds" => gpu_ids,
    });
    same!(t, "NV0000_CTRL_GPU_ATTACH_IDS_PARAMS", control::AttachIds {
        "gpuIds" => gpu_ids,
        "failedId" => failed_id,
    });
    same!(t, "NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS", control::GpuIdInfo {
        "gpuId" => gpu_id,
        "gpuFlags" => gpu_flags,
        "deviceInstance" => device_instance,
        "subDeviceInstance" => subdevice_instance,
        "sliStatus" => sli_status,
        "boardId" => board_id,
        "gpuInstance" => gpu_instance,
        "numaId" => numa_id,
    });
    shaped!(t, build_version, "NV0000_CTRL_SYSTEM_GET_BUILD_VERSION_V2_PARAMS", control::BuildVersion {
        "driverVersionBuffer" => driver_version,
        "versionBuffer" => version,
        "driverBranch" => branch,
        "titleBuffer" => title,
        "changelistNumber" => changelist,
        "officialChangelistNumber" => official_changelist,
    });
    same!(t, "NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS", control::ClassList {
        "numClasses" => count,
        "classList" => list,
    });
    same!(t, "NV2080_CTRL_GPU_GET_GID_INFO_PARAMS", control::GidInfo {
        "index" => index,
        "flags" => flags,
        "length" => length,
        "data" => data,
    });
    shaped!(t, ce_all_caps, "NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS", control::CeAllCaps {
        "capsTbl" => caps,
        "present" => present,
    });
    same!(t, "NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS", control::CePceMask {
        "ceEngineType" => engine_type,
        "pceMask" => mask,
    });
    shaped!(t, static_bar1, "NV2080_CTRL_FB_GET_STATIC_BAR1_INFO_PARAMS", control::StaticBar1Info {
        "bStaticBar1Enabled" => enabled,
        "staticBar1StartOffset" => start,
        "staticBar1Size" => size,
    });
    same!(t, "UVM_INITIALIZE_PARAMS", uvm::Initialize {
        "flags" => flags,
        "rmStatus" => status,
    });
    same!(t, "UVM_MM_INITIALIZE_PARAMS", uvm::MmInitialize {
        "uvmFd" => uvm_fd,
        "rmStatus" => status,
    });
    same!(t, "UVM_REGISTER_GPU_PARAMS", uvm::RegisterGpu {
        "gpu_uuid" => uuid,
        "numaEnabled" => numa_enabled,
        "numaNodeId" => numa_node,
        "rmCtrlFd" => ctl_fd,
        "hClient" => client,
        "hSmcPartRef" => partition,
        "rmStatus" => status,
    });
    same!(t, "UVM_UNREGISTER_GPU_PARAMS", uvm::UnregisterGpu {
        "gpu_uuid" => uuid,
        "rmStatus" => status,
    });
    same!(t, "UVM_UNREGISTER_GPU_VASPACE_PARAMS", uvm::UnregisterGpu {
        "gpuUuid" => uuid,
        "rmStatus" => status,
    });
    same!(t, "UVM_REGISTER_GPU_VASPACE_PARAMS", uvm::RegisterGpuVaspace {
        "gpuUuid" => uuid,
        "rmCtrlFd" => ctl_fd,
        "hClient" => client,
        "hVaSpace" => va_space,
        "rmStatus" => status,
    });
    same!(t, "UVM_REGISTER_CHANNEL_PARAMS", uvm::RegisterChannel {
        "gpuUuid" => uuid,
        "rmCtrlFd" => ctl_fd,
        "hClient" => client,
        "hChannel" => channel,
        "base" => base,
        "length" => length,
        "rmStatus" => status,
    });
    shaped!(t, uvm_unregister_channel, "UVM_UNREGISTER_CHANNEL_PARAMS", uvm::UnregisterChannel {
        "gpuUuid" => uuid,
        "hClient" => client,
        "hChannel" => channel,
        "rmStatus" => status,
    });
    same!(t, "UVM_CREATE_EXTERNAL_RANGE_PARAMS", uvm::Range {
        "base" => base,
        "length" => length,
        "rmStatus" => status,
    });
    shaped!(t, uvm_free, "UVM_FREE_PARAMS", uvm::Range {
        "base" => base,
        "length" => length,
        "rmStatus" => status,
    });
    same!(t, "UVM_UNMAP_EXTERNAL_PARAMS", uvm::GpuRange {
        "base" => base,
        "length" => length,
        "gpuUuid" => uuid,
        "rmStatus" => status,
    });
    same!(t, "UVM_MAP_EXTERNAL_SPARSE_PARAMS", uvm::GpuRange {
        "base" => base,
        "length" => length,
        "gpuUuid" => uuid,
        "rmStatus" => status,
    });
    same!(t, "UVM_MAP_DYNAMIC_PARALLELISM_REGION_PARAMS", uvm::GpuRange {
        "base" => base,
        "length" => length,
        "gpuUuid" => uuid,
        "rmStatus" => status,
    });
    same!(t, "UvmGpuMappingAttributes", uvm::GpuMapping {
        "gpuUuid" => uuid,
        "gpuMappingType" => mapping,
        "gpuCachingType" => caching,
        "gpuFormatType" => format,
        "gpuElementBits" => element_bits,
        "gpuCompressionType" => compression,
    });
    shaped!(t, uvm_map_external, "UVM_MAP_EXTERNAL_ALLOCATION_PARAMS", uvm::MapExternal {
        "base" => base,
        "length" => length,
        "offset" => offset,
        "perGpuAttributes" => gpus,
        "gpuAttributesCount" => gpu_count,
        "rmCtrlFd" => ctl_fd,
        "hClient" => client,
        "hMemory" => memory,
        "rmStatus" => status,
    });
    shaped!(t, map_dma, "NVOS46_PARAMETERS", abi::Nvos46 {
        "hClient" => client,
        "hDevice" => device,
        "hDma" => dma,
        "hMemory" => memory,
        "offset" => offset,
        "length" => length,
        "flags" => flags,
        "flags2" => flags2,
        "kindOverride" => kind_override,
        "dmaOffset" => dma_offset,
        "status" => status,
    });
    shaped!(t, vaspace_alloc, "NV_VASPACE_ALLOCATION_PARAMETERS", abi::VaspaceAlloc {
        "index" => index,
        "flags" => flags,
        "vaSize" => va_size,
        "vaStartInternal" => va_start_internal,
        "vaLimitInternal" => va_limit_internal,
        "bigPageSize" => big_page_size,
        "vaBase" => va_base,
        "pasid" => pasid,
    });
    shaped!(t, schedule, "NVA06F_CTRL_GPFIFO_SCHEDULE_PARAMS", control::Schedule {
        "bEnable" => enable,
        "bSkipSubmit" => skip_submit,
        "bSkipEnable" => skip_enable,
    });
    shaped!(t, probed_ids, "NV0000_CTRL_GPU_GET_PROBED_IDS_PARAMS", control::ProbedIds {
        "gpuIds" => gpu_ids,
        "excludedGpuIds" => excluded,
        "gpuFlags" => gpu_flags,
    });
    shaped!(t, class_list_v2, "NV0080_CTRL_GPU_GET_CLASSLIST_V2_PARAMS", control::ClassListV2 {
        "numClasses" => count,
        "classList" => classes,
    });

    shaped!(t, uvm_semaphore_pool, "UVM_ALLOC_SEMAPHORE_POOL_PARAMS", uvm::SemaphorePool {
        "base" => base,
        "length" => length,
    });
    // The part of the channel's parameters that every client sets is the start of the whole.
    assert_eq!(offset_of!(abi::ChannelAllocFull, client), 0);
}

/// Branches and versions that the second source knows.
fn versions_of_gvisor() -> impl Iterator<Item = (u32, &'static str)> {
    let lines = include_str!("gvisor.tsv").lines().filter_map(|l| l.strip_prefix("# versions "));
    lines.flat_map(|line| {
        let (branch, versions) = line.split_once(' ').unwrap();
        versions.split(' ').map(move |version| (branch.parse().unwrap(), version))
    })
}

/// They are within their branch's range of versions.
#[test]
fn versions_of_gvisor_are_known() {
    for (branch, version) in versions_of_gvisor() {
        let abi = abi::Abi::of(version);
        assert_eq!(abi.branch().number, branch, "{version}");
        assert!(matches!(abi.standing(), abi::Standing::Known | abi::Standing::Unverified), "{version}");
    }
    assert!(versions_of_gvisor().count() > 30);
}

/// `NV2080_CTRL_CE_CAPS_CE_*` as the headers of 570.133.20 and 580.105.08 write them: byte and bit.
#[test]
fn capabilities_of_copy_engines_are_those_of_the_headers() {
    let header = [
        ("GRCE", 0, 0x01),
        ("SHARED", 0, 0x02),
        ("SYSMEM_READ", 0, 0x04),
        ("SYSMEM_WRITE", 0, 0x08),
        ("NVLINK_P2P", 0, 0x10),
        ("SYSMEM", 0, 0x20),
        ("P2P", 0, 0x40),
        ("BL_SIZE_GT_64K_SUPPORTED", 0, 0x80),
        ("SUPPORTS_NONPIPELINED_BL", 1, 0x01),
        ("SUPPORTS_PIPELINED_BL", 1, 0x02),
        ("CC_SECURE", 1, 0x04),
        ("DECOMP_SUPPORTED", 1, 0x08),
    ];
    let ours: Vec<_> = control::ce_caps::NAMES.iter().map(|(bit, name)| (*bit, *name)).collect();
    let theirs: Vec<_> = header.iter().map(|(name, byte, bit)| ((*bit as u16) << (8 * byte), *name)).collect();
    assert_eq!(ours, theirs);
}

#[test]
fn heap_calls_are_read_where_the_headers_put_their_fields() {
    [Table::headers(), Table::gvisor()].iter().for_each(compare_heap_calls);
}

fn compare_heap_calls(t: &Table) {
    let name = "NVOS32_PARAMETERS";
    let compares = |member: &str| t.compares("field", name, member);
    for branch in t.branches() {
        let b = &*branch.number.to_string();
        let at = |member: &str| t.row(b, "field", name, member);
        assert_eq!(t.row(b, "struct", name, "-").size, size_of::<abi::Nvos32>() as u64);
        for (member, offset) in [
            ("hRoot", offset_of!(abi::Nvos32, root)),
            ("hObjectParent", offset_of!(abi::Nvos32, parent)),
            ("function", offset_of!(abi::Nvos32, function)),
            ("hVASpace", offset_of!(abi::Nvos32, va_space)),
            ("ivcHeapNumber", offset_of!(abi::Nvos32, ivc_heap)),
            ("status", offset_of!(abi::Nvos32, status)),
            ("total", offset_of!(abi::Nvos32, total)),
            ("free", offset_of!(abi::Nvos32, free)),
            ("data", offset_of!(abi::Nvos32, data)),
        ] {
            assert_eq!(at(member).value, offset as u64, "{member}");
        }
        let data = offset_of!(abi::Nvos32, data);
        for (member, offset) in [
            ("AllocSize.owner", offset_of!(abi::HeapAlloc, owner)),
            ("AllocSize.alignment", offset_of!(abi::HeapAlloc, alignment)),
            ("AllocSize.offset", offset_of!(abi::HeapAlloc, offset)),
            ("AllocSize.limit", offset_of!(abi::HeapAlloc, limit)),
            ("AllocSize.address", offset_of!(abi::HeapAlloc, address)),
            ("AllocSize.attr2", offset_of!(abi::HeapAlloc, attr2)),
            ("AllocOsDesc.type", offset_of!(abi::HeapOsDescriptor, kind)),
            ("AllocOsDesc.flags", offset_of!(abi::HeapOsDescriptor, flags)),
            ("AllocOsDesc.attr", offset_of!(abi::HeapOsDescriptor, attr)),
            ("AllocOsDesc.attr2", offset_of!(abi::HeapOsDescriptor, attr2)),
            ("AllocOsDesc.descriptorType", offset_of!(abi::HeapOsDescriptor, descriptor_type)),
            ("Free.owner", offset_of!(abi::HeapFree, owner)),
            ("Free.flags", offset_of!(abi::HeapFree, flags)),
        ] {
            let member = &*format!("data.{member}");
            assert!(!compares(member) || at(member).value == (data + offset) as u64, "{member}");
        }

        // In older branches the struct ends before it.
        if let Some(row) = t.row_if_any(b, "field", name, "data.AllocSize.numaNode") {
            assert_eq!(row.value, (data + offset_of!(abi::HeapAlloc, numa_node)) as u64);
        }

        // Bytes written at the table's offsets, read back through Call.
        let parse = |function: u32, fields: &[(&str, u64)]| {
            let mut bytes = abi::Nvos32 { function, ..Default::default() }.as_bytes().to_vec();
            for (member, value) in fields {
                let r = at(&format!("data.{member}"));
                let (from, n) = (r.value as usize, r.size as usize);
                bytes[from..from + n].copy_from_slice(&value.to_le_bytes()[..n]);
            }
            match Call::parse(branch, FileKind::Ctl, rm_request(nr::VID_HEAP_CONTROL, 184), &bytes, &[]) {
                Call::VidHeapControl(h) => h.op,
                other => panic!("{other:?}"),
            }
        };
        for (function, op) in [
            (abi::heap::ALLOC_SIZE, "AllocSize"),
            (abi::heap::ALLOC_SIZE_RANGE, "AllocSizeRange"),
            (abi::heap::ALLOC_TILED_PITCH_HEIGHT, "AllocTiledPitchHeight"),
        ] {
            let f = |m: &str| format!("{op}.{m}");
            if !compares(&format!("data.{op}.size")) {
                continue;
            }
            let got = parse(
                function,
                &[(&f("hMemory"), 1), (&f("type"), 2), (&f("flags"), 3), (&f("attr"), 4), (&f("size"), 5 << 32)],
            );
            assert_eq!(got, HeapOp::Alloc { memory: 1, kind: 2, flags: 3, attr: 4, size: 5 << 32 }, "{op}");
        }
        if t.partial {
            continue;
        }
        assert_eq!(
            parse(
                abi::heap::ALLOC_OS_DESCRIPTOR,
                &[("AllocOsDesc.hMemory", 1), ("AllocOsDesc.descriptor", 2), ("AllocOsDesc.limit", 0xfff)]
            ),
            HeapOp::OsDescriptor { memory: 1, descriptor: 2, size: 0x1000 }
        );
        assert_eq!(parse(abi::heap::FREE, &[("Free.hMemory", 9)]), HeapOp::Free { memory: 9 });
    }
    for r in t.rows.iter().filter(|r| r.name == name && r.kind != "ioctl") {
        assert!(r.seen.get(), "nobody compares {}", r.member);
    }
}

#[test]
fn requests_are_those_of_the_headers() {
    [Table::headers(), Table::gvisor()].iter().for_each(compare_requests);
}

fn compare_requests(t: &Table) {
    let both = |name: &str, member: &str, nr: u32, size: usize| {
        for branch in t.branches() {
            let b = branch.number.to_string();
            if branch.source == rm::abi::Source::Unverified && t.row_if_any(&b, "ioctl", name, member).is_none() {
                continue;
            }
            assert_eq!(t.row(&b, "ioctl", name, member).value, rm_request(nr, size), "{b} {name}");
        }
    };
    both("NV_ESC_RM_ALLOC_MEMORY", "nv_ioctl_nvos02_parameters_with_fd", nr::ALLOC_MEMORY, size_of::<abi::Nvos02Fd>());
    both("NV_ESC_RM_FREE", "NVOS00_PARAMETERS", nr::FREE, size_of::<abi::Nvos00>());
    both("NV_ESC_RM_CONTROL", "NVOS54_PARAMETERS", nr::CONTROL, size_of::<abi::Nvos54>());
    both("NV_ESC_RM_ALLOC", "NVOS21_PARAMETERS", nr::ALLOC, size_of::<abi::Nvos21>());
    both("NV_ESC_RM_ALLOC", "NVOS64_PARAMETERS", nr::ALLOC, size_of::<abi::Nvos64>());
    both("NV_ESC_RM_DUP_OBJECT", "NVOS55_PARAMETERS", nr::DUP_OBJECT, size_of::<abi::Nvos55>());
    both("NV_ESC_RM_VID_HEAP_CONTROL", "NVOS32_PARAMETERS", nr::VID_HEAP_CONTROL, size_of::<abi::Nvos32>());
    both("NV_ESC_RM_MAP_MEMORY", "nv_ioctl_nvos33_parameters_with_fd", nr::MAP_MEMORY, size_of::<abi::Nvos33Fd>());
    both("NV_ESC_RM_UNMAP_MEMORY", "NVOS34_PARAMETERS", nr::UNMAP_MEMORY, size_of::<abi::Nvos34>());
    both("NV_ESC_REGISTER_FD", "nv_ioctl_register_fd_t", nr::REGISTER_FD, size_of::<abi::RegisterFd>());
    both("NV_ESC_ALLOC_OS_EVENT", "nv_ioctl_alloc_os_event_t", nr::ALLOC_OS_EVENT, size_of::<abi::OsEvent>());
    both("NV_ESC_FREE_OS_EVENT", "nv_ioctl_free_os_event_t", nr::FREE_OS_EVENT, size_of::<abi::OsEvent>());
    both("NV_ESC_CARD_INFO", "nv_ioctl_card_info_t", nr::CARD_INFO, size_of::<abi::CardInfo>());
    both(
        "NV_ESC_CHECK_VERSION_STR",
        "nv_ioctl_rm_api_version_t",
        nr::CHECK_VERSION_STR,
        size_of::<abi::CheckVersion>(),
    );
    for branch in t.branches() {
        let (b, layouts) = (branch.number.to_string(), &branch.layouts);
        for (name, member, nr, size) in [
            ("NV_ESC_RM_MAP_MEMORY_DMA", "NVOS46_PARAMETERS", nr::MAP_MEMORY_DMA, layouts.map_dma.size()),
            ("NV_ESC_RM_UNMAP_MEMORY_DMA", "NVOS47_PARAMETERS", nr::UNMAP_MEMORY_DMA, layouts.unmap_dma.size()),
        ] {
            assert_eq!(t.row(&b, "ioctl", name, member).value, rm_request(nr, size), "{b}");
        }
    }
    t.finish(&["ioctl"]);
}

#[test]
fn numbers_and_names_are_those_of_the_headers() {
    for r in Table::headers().rows.iter().chain(&Table::gvisor().rows) {
        let name = match r.kind {
            "uvm" => uvm::name(r.value),
            "control" => rm::control::name(r.value as u32),
            "class" => rm::class::name(r.value as u32),
            "status" => rm::status::name(r.value as u32),
            "struct" | "field" | "ioctl" => continue,
            kind => panic!("nobody compares {kind} {}", r.name),
        };
        assert_eq!(name, Some(r.name));
    }
    let t = Table::headers();
    for branch in t.branches() {
        let b = &*branch.number.to_string();
        let control = |name: &str, number: u32| assert_eq!(t.row(b, "control", name, "-").value, u64::from(number));
        control("NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN", control::CTRL_WORK_SUBMIT_TOKEN);
        control("NVC36F_CTRL_CMD_GPFIFO_SET_WORK_SUBMIT_TOKEN_NOTIF_INDEX", control::SET_TOKEN_NOTIF_INDEX);
        control("NV0000_CTRL_CMD_SYSTEM_GET_BUILD_VERSION_V2", control::BUILD_VERSION_V2);
        control("NV0000_CTRL_CMD_GPU_GET_ATTACHED_IDS", control::GPU_ATTACHED_IDS);
        control("NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2", control::GPU_ID_INFO_V2);
        control("NV0000_CTRL_CMD_GPU_GET_PROBED_IDS", control::GPU_PROBED_IDS);
        control("NV0000_CTRL_CMD_GPU_ATTACH_IDS", control::GPU_ATTACH_IDS);
        control("NV0080_CTRL_CMD_GPU_GET_CLASSLIST", control::CLASS_LIST);
        control("NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2", control::CLASS_LIST_V2);
        control("NV2080_CTRL_CMD_GPU_GET_GID_INFO", control::GID_INFO);
        if branch.layouts.static_bar1.size() != 0 {
            control("NV2080_CTRL_CMD_FB_GET_STATIC_BAR1_INFO", control::STATIC_BAR1_INFO);
        }
        control("NV2080_CTRL_CMD_CE_GET_CE_PCE_MASK", control::CE_PCE_MASK);
        control("NV2080_CTRL_CMD_CE_GET_ALL_CAPS", control::CE_ALL_CAPS);
        control("NVA06C_CTRL_CMD_GPFIFO_SCHEDULE", control::GROUP_SCHEDULE);
        control("NVA06F_CTRL_CMD_GPFIFO_SCHEDULE", control::CHANNEL_SCHEDULE);
        control("NVA06F_CTRL_CMD_BIND", control::CHANNEL_BIND);
    }
    t.finish(&["control"]);
}
