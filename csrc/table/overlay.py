"""The meaning of each function to tempi, which the standard's data does not give.

Every function of the standard is described: by a set below, by a rule in rows.py, or by the default
`local`. Each exception has its reason here.
"""

from __future__ import annotations

from enum import StrEnum


class Class(StrEnum):
    """The effect of a function on the deferred sends of this process."""

    LOCAL = "local"  # neither communicates nor waits: deferred sends do not matter
    SENDS = "sends"  # starts a point-to-point message, which must not overtake a deferred one
    PROGRESS = "progress"  # communicates without waiting; programs poll with it
    MAY_BLOCK = "may_block"  # may wait for another process: deferred sends are posted first
    ENDS = "ends"  # ends this process's use of MPI: deferred sends are posted first


class Role(StrEnum):
    """The effect of a function on requests."""

    NONE = "none"
    CREATES = "creates"
    STARTS = "starts"
    COMPLETES = "completes"
    INSPECTS = "inspects"
    RELEASES = "releases"


# Functions that tempi acts in: their wrappers call tempi_impl_<name> of the shim.
ACTED = frozenset(
    """
    Init Init_thread Session_init Finalize Session_finalize Type_commit Type_free Pack Unpack
    Send Ssend Rsend Bsend Recv Sendrecv Sendrecv_replace
    Isend Issend Irsend Ibsend Irecv Mrecv Imrecv
    Isendrecv Isendrecv_replace Send_init Ssend_init Rsend_init Bsend_init Recv_init Start Startall
    Wait Waitall Waitany Waitsome Test Testall Testany Testsome
    Request_free Request_get_status Request_get_status_all Request_get_status_any
    Request_get_status_some Cancel Pack_external Unpack_external
    Comm_get_info File_get_info Session_get_info
    Psend_init Precv_init Pready Pready_range Pready_list Parrived
    Alloc_mem Free_mem
    """.split()
)

# The acted functions that pass device buffers to the generated bounce themselves.
BOUNCES_ITSELF = frozenset({"Isendrecv", "Isendrecv_replace"})

# The acted functions whose data tempi never moves: calls with a derived datatype are counted as left to the
# library, as in every function that tempi does not act in.
NEVER_CARRIED = BOUNCES_ITSELF | {"Psend_init", "Precv_init", "Pack_external", "Unpack_external"}

# Exported although some supported library lacks the function: the shim's implementation does not need
# it, or returns what mpi4py returns for a missing name.
OWN_IMPLEMENTATION = {
    "Request_get_status_all": "new in MPI-4.1; made from Request_get_status",
    "Request_get_status_any": "new in MPI-4.1; made from Request_get_status",
    "Request_get_status_some": "new in MPI-4.1; made from Request_get_status",
    "Isendrecv": "new in MPI-4.0; must not overtake a deferred send; without it: TEMPI_UNAVAILABLE",
    "Isendrecv_replace": "as Isendrecv",
    "Session_init": "new in MPI-4.0; begins an epoch; without it: TEMPI_UNAVAILABLE",
    "Session_finalize": "new in MPI-4.0; ends an epoch; without it: TEMPI_UNAVAILABLE",
}

# Exported although some supported library lacks the function: their device buffers are bounced. Where the
# library lacks it they return TEMPI_UNAVAILABLE, as mpi4py does for a missing name.
_LACKS_41 = "Open MPI 4.1 lacks it: TEMPI_UNAVAILABLE there"
_NEW_41 = "new in MPI-4.1; on older libraries TEMPI_UNAVAILABLE"
OPTIONAL = dict.fromkeys(
    """
    Allgather_init Allgatherv_init Allreduce_init Alltoall_init Alltoallv_init Alltoallw_init Bcast_init
    Exscan_init Gather_init Gatherv_init Reduce_init Reduce_scatter_init Reduce_scatter_block_init
    Scan_init Scatter_init Scatterv_init Neighbor_allgather_init Neighbor_allgatherv_init
    Neighbor_alltoall_init Neighbor_alltoallv_init Neighbor_alltoallw_init
    Session_get_info
    Psend_init Precv_init Pready Pready_range Pready_list Parrived
    """.split(),
    _LACKS_41,
) | dict.fromkeys(("Comm_attach_buffer", "Session_attach_buffer"), _NEW_41)

# Exported although local: invariant 4 of docs/design.md.
EXPORTED_LOCAL = {
    "Initialized": "answers 0 while no MPI is loaded",
    "Finalized": "answers 0 while no MPI is loaded",
}

# Not exported although their class requires it: nothing can serve them on a library that lacks them.
# The rule finds them by symbols.txt; a test checks that the two agree.
_SESSIONS = "Open MPI 4.1 has no sessions; it needs a group that comes from one"
_BUFFERS_41 = "new in MPI-4.1; flushing a buffer concerns buffered sends only, which are never deferred"
UNSERVED = {
    "Session_detach_buffer": _BUFFERS_41,
    "Session_flush_buffer": _BUFFERS_41,
    "Session_iflush_buffer": _BUFFERS_41,
    "Comm_detach_buffer": _BUFFERS_41,
    "Comm_flush_buffer": _BUFFERS_41,
    "Comm_iflush_buffer": _BUFFERS_41,
    "Buffer_flush": _BUFFERS_41,
    "Buffer_iflush": _BUFFERS_41,
    "Comm_create_from_group": _SESSIONS,
    "Intercomm_create_from_groups": _SESSIONS,
    "Comm_idup_with_info": "Open MPI 4.1 lacks it; it only begins, and Wait, which is ours, ends it",
}

# Never exported: programs probe for a symbol of that name in the process.
NEVER = {
    "Get_version": "mpi4py takes it as proof that an MPI is loaded",
    "Get_library_version": "tells which library this is; mpi4py probes for it",
    "Abi_get_version": "an ABI probe",
    "Abi_get_info": "an ABI probe",
    "Abi_get_fortran_info": "an ABI probe",
    "Abi_get_fortran_booleans": "an ABI probe",
    "Abi_set_fortran_info": "an ABI probe",
    "Abi_set_fortran_booleans": "an ABI probe",
}

ENDS = frozenset({"Finalize", "Session_finalize", "Abort"})

SENDS = frozenset(
    """
    Isend Issend Irsend Ibsend Isendrecv Isendrecv_replace Start Startall
    Pready Pready_range Pready_list
    """.split()
)

PROGRESS = frozenset(
    """
    Irecv Imrecv Iprobe Improbe Test Testall Testany Testsome Request_get_status
    Request_get_status_all Request_get_status_any Request_get_status_some Parrived
    Iallgather Iallgatherv Iallreduce Ialltoall Ialltoallv Ialltoallw Ibarrier Ibcast Iexscan Igather
    Igatherv Ireduce Ireduce_scatter Ireduce_scatter_block Iscan Iscatter Iscatterv
    Ineighbor_allgather Ineighbor_allgatherv Ineighbor_alltoall Ineighbor_alltoallv
    Ineighbor_alltoallw Comm_idup Comm_idup_with_info Win_test
    File_iread_all File_iread_at_all File_iwrite_all File_iwrite_at_all
    Buffer_iflush Comm_iflush_buffer Session_iflush_buffer
    """.split()
)

MAY_BLOCK = frozenset(
    """
    Init Init_thread Session_init
    Send Ssend Rsend Bsend Recv Mrecv Sendrecv Sendrecv_replace Probe Mprobe
    Wait Waitall Waitany Waitsome
    Buffer_detach Comm_detach_buffer Session_detach_buffer
    Buffer_flush Comm_flush_buffer Session_flush_buffer
    Allgather Allgatherv Allreduce Alltoall Alltoallv Alltoallw Barrier Bcast Exscan Gather Gatherv
    Reduce Reduce_scatter Reduce_scatter_block Scan Scatter Scatterv
    Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw
    Comm_create Comm_create_group Comm_create_from_group Comm_dup Comm_dup_with_info Comm_split
    Comm_split_type Comm_free Comm_disconnect Comm_set_info
    Intercomm_create Intercomm_create_from_groups Intercomm_merge
    Cart_create Cart_sub Graph_create Dist_graph_create Dist_graph_create_adjacent
    Cart_map Graph_map
    Comm_accept Comm_connect Comm_join Comm_spawn Comm_spawn_multiple
    Publish_name Unpublish_name Lookup_name
    Win_create Win_create_dynamic Win_allocate Win_allocate_shared Win_free Win_set_info Win_fence
    Win_start Win_complete Win_post Win_wait Win_lock Win_lock_all Win_unlock Win_unlock_all
    Win_flush Win_flush_all Win_flush_local Win_flush_local_all
    File_open File_close File_set_size File_preallocate File_set_info File_set_view
    File_set_atomicity File_sync File_seek_shared
    File_read_all File_read_at_all File_write_all File_write_at_all
    File_read_all_begin File_read_all_end File_read_at_all_begin File_read_at_all_end
    File_write_all_begin File_write_all_end File_write_at_all_begin File_write_at_all_end
    File_read_ordered File_read_ordered_begin File_read_ordered_end
    File_write_ordered File_write_ordered_begin File_write_ordered_end
    File_read_shared File_write_shared File_iread_shared File_iwrite_shared
    """.split()
)

# Persistent constructors communicate nothing until they are started.
ROLES = {
    "Start": Role.STARTS,
    "Startall": Role.STARTS,
    "Pready": Role.STARTS,
    "Pready_range": Role.STARTS,
    "Pready_list": Role.STARTS,
    "Cancel": Role.INSPECTS,
    "Parrived": Role.INSPECTS,
    "Grequest_complete": Role.NONE,
    "Request_free": Role.RELEASES,
}

# Functions that the shim may call besides the exported ones; each also as `_c` where that exists.
AUXILIARY = frozenset(
    """
    Type_get_envelope Type_get_contents Type_get_extent Type_get_extent_x Type_get_true_extent
    Type_get_true_extent_x Type_size Type_size_x Type_create_keyval Type_free_keyval Type_set_attr
    Type_get_attr Type_delete_attr Type_contiguous Type_vector Type_indexed Type_create_struct
    Type_create_hvector Type_create_hindexed Type_create_resized Type_dup Type_get_name
    Type_set_name Pack_size Pack_external_size Get_address
    Grequest_start Grequest_complete
    Get_count Get_elements Get_elements_x Status_set_elements Status_set_elements_x
    Status_set_cancelled Test_cancelled
    Comm_rank Comm_size Comm_group Comm_compare Comm_test_inter Comm_remote_size Comm_remote_group
    Comm_get_attr Comm_set_attr Comm_delete_attr Comm_create_keyval Comm_free_keyval
    Comm_get_errhandler Comm_set_errhandler Comm_call_errhandler Comm_get_parent Comm_get_name
    Errhandler_free Error_class Error_string Add_error_class Add_error_code Add_error_string
    File_call_errhandler Win_call_errhandler
    Group_size Group_rank Group_translate_ranks Group_incl Group_union Group_free Group_from_session_pset
    Topo_test Cartdim_get Cart_get Cart_shift Cart_rank Graphdims_get Graph_neighbors_count
    Dist_graph_neighbors_count Dist_graph_neighbors Graph_neighbors
    Query_thread Is_thread_main Get_library_version Get_version Get_processor_name Wtime Pcontrol
    Alloc_mem Free_mem Info_create Info_free Info_set Info_get Op_free
    Session_init Session_finalize Isendrecv Isendrecv_replace
    Buffer_attach Put Get Accumulate
    """.split()
)

# Prototypes that lack the standard's const in some mpi.h: the call is the same.
WITHOUT_CONST = {
    "Pready_list": "Open MPI 5.0",
    "Request_get_status_all": "Intel MPI 2021.18",
    "Request_get_status_any": "Intel MPI 2021.18",
    "Request_get_status_some": "Intel MPI 2021.18",
}

# Handle conversions are functions on some libraries and macros on others: both come out as
# static inline tempi_<name>.
CONVERSIONS = ("Comm_c2f", "Type_c2f", "Request_c2f", "Comm_f2c", "Type_f2c", "Request_f2c")

# Number of entries of the array arguments of the large-count form, for a library without that form.
#   peers      size of the peer group (the remote group of an intercommunicator)
#   local      size of the local group
#   root_peers peers, at the root only
#   in, out    neighbours that this process receives from, sends to
ARRAY_LENGTH = {
    "Allgatherv": {"recvcounts": "peers", "displs": "peers"},
    "Alltoallv": dict.fromkeys(("sendcounts", "sdispls", "recvcounts", "rdispls"), "peers"),
    "Alltoallw": dict.fromkeys(("sendcounts", "sdispls", "recvcounts", "rdispls"), "peers"),
    "Gatherv": {"recvcounts": "root_peers", "displs": "root_peers"},
    "Scatterv": {"sendcounts": "root_peers", "displs": "root_peers"},
    "Reduce_scatter": {"recvcounts": "local"},
    "Neighbor_allgatherv": {"recvcounts": "in", "displs": "in"},
    "Neighbor_alltoallv": {
        "sendcounts": "out",
        "sdispls": "out",
        "recvcounts": "in",
        "rdispls": "in",
    },
    "Neighbor_alltoallw": {"sendcounts": "out", "recvcounts": "in"},
}

# How often a buffer's single count applies, by the name of the blocking form; lengths as above.
TIMES = {
    "Allgather": {"recvbuf": "peers"},
    "Alltoall": {"sendbuf": "peers", "recvbuf": "peers"},
    "Gather": {"recvbuf": "root_peers"},
    "Scatter": {"sendbuf": "root_peers"},
    "Reduce_scatter_block": {"sendbuf": "local"},
    "Neighbor_allgather": {"recvbuf": "in"},
    "Neighbor_alltoall": {"sendbuf": "out", "recvbuf": "in"},
}

# Functions that may leave part or all of an output buffer unchanged: neighbours that are MPI_PROC_NULL, the
# first rank's result, the end of a file, messages shorter than expected.
PARTIAL = frozenset(
    """
    Neighbor_allgather Neighbor_allgatherv Neighbor_alltoall Neighbor_alltoallv Neighbor_alltoallw
    Exscan Isendrecv
    """.split()
)

# The buffer that may be MPI_IN_PLACE (MPI-5.0 chapter 6), by the name of the blocking form.
IN_PLACE = {
    "Gather": "sendbuf",
    "Gatherv": "sendbuf",
    "Scatter": "recvbuf",
    "Scatterv": "recvbuf",
    "Allgather": "sendbuf",
    "Allgatherv": "sendbuf",
    "Alltoall": "sendbuf",
    "Alltoallv": "sendbuf",
    "Alltoallw": "sendbuf",
    "Reduce": "sendbuf",
    "Allreduce": "sendbuf",
    "Reduce_scatter": "sendbuf",
    "Reduce_scatter_block": "sendbuf",
    "Scan": "sendbuf",
    "Exscan": "sendbuf",
}

# Buffers that hold no data of a message, so they have neither count nor type.
NOT_A_MESSAGE = frozenset(
    """
    Buffer_attach Comm_attach_buffer Session_attach_buffer Buffer_detach Comm_detach_buffer
    Session_detach_buffer Free_mem Alloc_mem Win_create Win_attach Win_detach Get_address
    Win_allocate Win_allocate_shared Win_shared_query
    """.split()
)

# Memory that is passed permanently, or for other processes to use: device memory cannot be bounced.
REFUSED = {
    "Win_create": ("base", "size"),
    "Win_attach": ("base", "size"),
    "Buffer_attach": ("buffer", "size"),
    "Comm_attach_buffer": ("buffer", "size"),
    "Session_attach_buffer": ("buffer", "size"),
}

# Functions that complete one-sided operations of this process: to the target that an argument names, or all.
SYNCHRONISES = {
    "Win_fence": "",
    "Win_complete": "",
    "Win_flush": "rank",
    "Win_flush_local": "rank",
    "Win_flush_all": "",
    "Win_flush_local_all": "",
    "Win_unlock": "rank",
    "Win_unlock_all": "",
    "Win_free": "",
}

# Collectives that tempi carries if all processes of the communicator are on one node and run tempi
# (shim/coll/collective.h), and which process passes blocks to which; else they are the library's, and counted.
COLLECTIVES = {
    "Alltoall": "ALL",
    "Alltoallv": "ALL",
    "Alltoallw": "ALL",
    "Allgather": "ALL",
    "Allgatherv": "ALL",
    "Bcast": "FROM_ROOT",
    "Gather": "TO_ROOT",
    "Gatherv": "TO_ROOT",
    "Scatter": "FROM_ROOT",
    "Scatterv": "FROM_ROOT",
    "Neighbor_alltoall": "NEIGHBORS",
    "Neighbor_alltoallv": "NEIGHBORS",
    "Neighbor_alltoallw": "NEIGHBORS",
    "Neighbor_allgather": "NEIGHBORS",
    "Neighbor_allgatherv": "NEIGHBORS",
}

# Open MPI and Intel MPI deliver wrong blocks in their nonblocking and persistent forms (shim/coll/neighbor_order.h).
MISORDERED = frozenset({"Neighbor_alltoall", "Neighbor_alltoallv", "Neighbor_alltoallw"})

# Blocking collectives of a communicator: in them its processes may agree on something.
MEETS = frozenset(
    """
    Barrier Reduce Allreduce Reduce_scatter Reduce_scatter_block Scan Exscan
    """.split()
) | frozenset(COLLECTIVES)

# They make a communicator with a topology, or may, and may wait for all its processes: these agree there on its
# nonblocking collectives. Programs that exchange with neighbours by these alone have no later call for it, and Open MPI
# and Intel MPI deliver wrong blocks in them.
CONNECTS = frozenset(
    """
    Cart_create Cart_sub Graph_create Dist_graph_create Dist_graph_create_adjacent Comm_dup Comm_dup_with_info
    """.split()
)

# Acted functions with a cached choice for a type and count: if it is the library, the call is forwarded after one of
# two tests (shim/p2p/packing.h), of which the first one is for the type's last count. Their arguments are the
# function's own.
SETTLED = {
    "Pack": "(datatype, incount, TEMPI_OP_PACK)",
    "Unpack": "(datatype, outcount, TEMPI_OP_UNPACK)",
}

# Acted functions whose messages may be known to be the library's from messages like them (shim/p2p/message.h): then
# the call is forwarded after one test, with these arguments.
REPEATED = {
    **dict.fromkeys(
        "Send Ssend Rsend Bsend Isend Issend Irsend Ibsend".split(), "(datatype, count, dest, comm, TEMPI_OP_SEND)"
    ),
    **dict.fromkeys(("Recv", "Irecv"), "(datatype, count, source, comm, TEMPI_OP_RECV)"),
    **dict.fromkeys(("Mrecv", "Imrecv"), "(datatype, count, -1, MPI_COMM_NULL, TEMPI_OP_RECV)"),
}

# Extensions of the libraries to the standard: their parameters in C, and tempi's note on them. They are
# always exported: the shim's functions of the same names serve them.
EXTENSIONS = {
    "MPIX_Query_cuda_support": ((), "1 where device memory works, by the library or by tempi"),
    "MPIX_GPU_query_support": (
        (("gpu_type", "int", "in"), ("is_supported", "int *", "out")),
        "the same for CUDA; MPICH's query function, and the library's answer for other GPUs",
    ),
}
