! Every collective that tempi carries, from Fortran. WAY is 1: mpif.h, 2: use mpi, 3: use mpi_f08; PERSISTENT: the
! library has persistent forms under MPI 4's names, and mpi_f08 large counts.
!
!     collectives HOWFAR [TYPES]
!
! HOWFAR is blocking: those forms only; nonblocking: these too; persistent: all. TYPES is later: no MPI_Ialltoallw
! before the processes have agreed, as Open MPI 4.1 frees its types too early; never: no MPI_Alltoallw in any form.
!
! Processes send blocks of which every fourth element is data, and receive blocks of which every third one is. Each
! value tells who sent it, to whom and in which call. Rank 0 writes for each call "ok" or "BAD" on stdout, and on stderr
! "carried LEAST MOST" and its name: by how much the counter rose on the ranks.
program collectives
#if WAY == 2
  use mpi
#elif WAY == 3
  use mpi_f08
#endif
  use, intrinsic :: iso_c_binding, only: c_long
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
#if WAY == 1
  include 'mpif.h'
#endif
#if WAY == 3
#define HANDLE(KIND) type(KIND)
#else
#define HANDLE(KIND) integer
#endif
! A call in the form that is chosen, with the arguments that all forms have. A persistent request is made once.
#define BLOCK(B) if (form == BLOCKING) call B(ARGUMENTS, ierr)
#define POST(N) if (form == NONBLOCKING) call N(ARGUMENTS, request, ierr)
#ifdef PERSISTENT
#define INIT(P) if (form == PERSISTENT_FORM .and. turn == 1) call P(ARGUMENTS, MPI_INFO_NULL, request, ierr)
#else
#define INIT(P) continue
#endif
#define IN_FORM(B, N, P) BLOCK(B); POST(N); INIT(P); call complete(turn)
#define ADDRESS integer(MPI_ADDRESS_KIND)

  interface
    function counted_collectives() bind(C)
      import :: c_long
      integer(c_long) :: counted_collectives
    end function
  end interface

  integer, parameter :: MOST = 4, CELLS = 50, WIDE = 4 * CELLS, NARROW = 3 * CELLS, BLOCKS = 2
  integer, parameter :: BLOCKING = 1, NONBLOCKING = 2, PERSISTENT_FORM = 3
  integer, parameter :: EVERYONE = 7, EDGE = 8  ! in place of a receiver: everyone, and a neighbour by its index
  character(len=*), parameter :: FORMS(3) = ['blocking   ', 'nonblocking', 'persistent ']

  double precision, target, asynchronous :: out(WIDE, BLOCKS, 0:MOST-1), in(NARROW, BLOCKS, 0:MOST-1)
  double precision :: sent(WIDE, BLOCKS, 0:MOST-1), want(NARROW, BLOCKS, 0:MOST-1)
  integer :: sendcounts(0:MOST-1), recvcounts(0:MOST-1), senddispls(0:MOST-1), recvdispls(0:MOST-1)
  ADDRESS :: edge_out(0:MOST-1), edge_in(0:MOST-1), at_out(0:MOST-1), at_in(0:MOST-1)
  HANDLE(MPI_Datatype) :: wide_type, narrow_type, shifted_type, sendtypes(0:MOST-1), recvtypes(0:MOST-1)
  HANDLE(MPI_Datatype) :: far_out(0:MOST-1), far_in(0:MOST-1)
  HANDLE(MPI_Comm) :: comm, graph
  HANDLE(MPI_Request) :: request
  integer :: rank, nranks, root, ierr, call_number, form, i, degree, sources(0:1), targets(0:1)
  integer(c_long) :: before
  logical :: telling
  character(len=16) :: how_far, when_types

  call get_command_argument(1, how_far)
  call get_command_argument(2, when_types)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierr)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierr)
  sources = [mod(rank + nranks - 1, nranks), mod(rank + 2 * nranks - 2, nranks)]
  targets = [mod(rank + 1, nranks), mod(rank + 2, nranks)]
  degree = min(2, nranks)  ! more neighbours than ranks are too many for Open MPI's MPI_Neighbor_alltoallw in Fortran
  call MPI_Dist_graph_create_adjacent(comm, degree, sources, [1, 1], degree, targets, [1, 1], MPI_INFO_NULL, .false., &
                                      graph, ierr)
  root = nranks - 1
  call_number = 0
  call make_types()

  telling = .true.
  call every(BLOCKING)
#if WAY == 3
  call section()
#ifdef PERSISTENT
  call large_counts()
#endif
#endif
  if (how_far /= 'blocking') then
    ! The library does the first nonblocking call; the processes agree on the next ones in a blocking call.
    telling = .false.
    call every(NONBLOCKING)
    call MPI_Barrier(comm, ierr)
    call MPI_Barrier(graph, ierr)
    telling = .true.
    call every(NONBLOCKING)
#ifdef PERSISTENT
    if (how_far == 'persistent') call every(PERSISTENT_FORM)
#endif
  end if

  call free_types()
  call MPI_Comm_free(graph, ierr)
  call MPI_Comm_free(comm, ierr)
  call MPI_Finalize(ierr)

contains

  subroutine every(which)
    integer, intent(in) :: which
    form = which
    call all_to_all()
    call at_a_root()
    call to_all()
    call among_neighbours()
    call in_place_all()
    call in_place_at_a_root()
    call from_bottom()
  end subroutine

#include "collective_cells.fi"

  ! ---- all to all ------------------------------------------------------------

  subroutine all_to_all()
    integer :: turn
    do turn = 1, turns()
      call prepare_each()
#define ARGUMENTS out, BLOCKS, wide_type, in, BLOCKS, narrow_type, comm
      IN_FORM(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init)
#undef ARGUMENTS
      call expect_from_all(rank, spread(BLOCKS, 1, nranks))
      call verdict('Alltoall')
    end do

    do i = 0, nranks - 1
      sendcounts(i) = blocks_of(rank, i)
      recvcounts(i) = blocks_of(i, rank)
      senddispls(i) = i * BLOCKS
      recvdispls(i) = (nranks - 1 - i) * BLOCKS
    end do
    do turn = 1, turns()
      call prepare_each()
#define ARGUMENTS out, sendcounts, senddispls, wide_type, in, recvcounts, recvdispls, narrow_type, comm
      IN_FORM(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init)
#undef ARGUMENTS
      do i = 0, nranks - 1
        call expect(i, rank, nranks - 1 - i, recvcounts(i), 0)
      end do
      call verdict('Alltoallv')
    end do

    do i = 0, nranks - 1
      senddispls(i) = 8 * WIDE * BLOCKS * i
      recvdispls(i) = 8 * NARROW * BLOCKS * (nranks - 1 - i)
      sendtypes(i) = wide_type
      recvtypes(i) = narrow_type
      if (mod(i, 2) == 1) recvtypes(i) = shifted_type
    end do
    if (with_types()) then
      do turn = 1, turns()
        call prepare_each()
#define ARGUMENTS out, sendcounts, senddispls, sendtypes, in, recvcounts, recvdispls, recvtypes, comm
        IN_FORM(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init)
#undef ARGUMENTS
        do i = 0, nranks - 1
          call expect(i, rank, nranks - 1 - i, recvcounts(i), mod(i, 2))
        end do
        call verdict('Alltoallw')
      end do
    end if
  end subroutine

  ! ---- at a root, and from all to all ------------------------------------------------------------

  subroutine at_a_root()
    integer :: turn
    do turn = 1, turns()
      call prepare_one()
#define ARGUMENTS out, BLOCKS, wide_type, in, BLOCKS, narrow_type, root, comm
      IN_FORM(MPI_Gather, MPI_Igather, MPI_Gather_init)
#undef ARGUMENTS
      if (rank == root) then
        call expect_from_all(EVERYONE, spread(BLOCKS, 1, nranks))
      end if
      call verdict('Gather')
    end do

    do i = 0, nranks - 1
      recvcounts(i) = blocks_of(i, root)
      sendcounts(i) = blocks_of(root, i)
      recvdispls(i) = (nranks - 1 - i) * BLOCKS
      senddispls(i) = (nranks - 1 - i) * BLOCKS
    end do
    do turn = 1, turns()
      call prepare_one()
#define ARGUMENTS out, blocks_of(rank, root), wide_type, in, recvcounts, recvdispls, narrow_type, root, comm
      IN_FORM(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init)
#undef ARGUMENTS
      if (rank == root) then
        do i = 0, nranks - 1
          call expect(i, EVERYONE, nranks - 1 - i, recvcounts(i), 0)
        end do
      end if
      call verdict('Gatherv')
    end do

    do turn = 1, turns()
      call prepare_each()
#define ARGUMENTS out, BLOCKS, wide_type, in, BLOCKS, narrow_type, root, comm
      IN_FORM(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init)
#undef ARGUMENTS
      call expect(root, rank, 0, BLOCKS, 0)
      call verdict('Scatter')
    end do

    do turn = 1, turns()
      call prepare_each()
#define ARGUMENTS out, sendcounts, senddispls, wide_type, in, blocks_of(root, rank), shifted_type, root, comm
      IN_FORM(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init)
#undef ARGUMENTS
      call expect(root, nranks - 1 - rank, 0, sendcounts(rank), 1)
      call verdict('Scatterv')
    end do

    do turn = 1, turns()
      call prepare_one()
      if (rank == root) then
#define ARGUMENTS out, BLOCKS, wide_type, root, comm
        IN_FORM(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init)
#undef ARGUMENTS
      else
#define ARGUMENTS in, BLOCKS, narrow_type, root, comm
        IN_FORM(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init)
#undef ARGUMENTS
      end if
      if (rank /= root) call expect(root, EVERYONE, 0, BLOCKS, 0)
      call verdict('Bcast')
    end do
  end subroutine

  subroutine to_all()
    integer :: turn
    do turn = 1, turns()
      call prepare_one()
#define ARGUMENTS out, BLOCKS, wide_type, in, BLOCKS, narrow_type, comm
      IN_FORM(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init)
#undef ARGUMENTS
      call expect_from_all(EVERYONE, spread(BLOCKS, 1, nranks))
      call verdict('Allgather')
    end do

    do i = 0, nranks - 1
      recvcounts(i) = blocks_of(i, 0)
      recvdispls(i) = (nranks - 1 - i) * BLOCKS
    end do
    do turn = 1, turns()
      call prepare_one()
#define ARGUMENTS out, recvcounts(rank), wide_type, in, recvcounts, recvdispls, shifted_type, comm
      IN_FORM(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init)
#undef ARGUMENTS
      do i = 0, nranks - 1
        call expect(i, EVERYONE, nranks - 1 - i, recvcounts(i), 1)
      end do
      call verdict('Allgatherv')
    end do
  end subroutine

  ! ---- neighbours ------------------------------------------------------------

  subroutine among_neighbours()
    integer :: turn
    do turn = 1, turns()
      call prepare_edges()
#define ARGUMENTS out, BLOCKS, wide_type, in, BLOCKS, narrow_type, graph
      IN_FORM(MPI_Neighbor_alltoall, MPI_Ineighbor_alltoall, MPI_Neighbor_alltoall_init)
#undef ARGUMENTS
      do i = 0, degree - 1
        call expect(sources(i), EDGE + i, i, BLOCKS, 0)
      end do
      call verdict('Neighbor_alltoall')
    end do

    sendcounts(0:1) = [2, 1]
    recvcounts(0:1) = [2, 1]
    senddispls(0:1) = [0, BLOCKS]
    recvdispls(0:1) = [BLOCKS, 0]
    do turn = 1, turns()
      call prepare_edges()
#define ARGUMENTS out, sendcounts, senddispls, wide_type, in, recvcounts, recvdispls, narrow_type, graph
      IN_FORM(MPI_Neighbor_alltoallv, MPI_Ineighbor_alltoallv, MPI_Neighbor_alltoallv_init)
#undef ARGUMENTS
      do i = 0, degree - 1
        call expect(sources(i), EDGE + i, 1 - i, recvcounts(i), 0)
      end do
      call verdict('Neighbor_alltoallv')
    end do

    edge_out(0:1) = [0, 8 * WIDE * BLOCKS]
    edge_in(0:1) = [8 * NARROW * BLOCKS, 0]
    sendtypes(0:1) = wide_type
    recvtypes(0) = narrow_type
    recvtypes(1) = shifted_type
    do turn = 1, turns()
      call prepare_edges()
#define ARGUMENTS out, sendcounts, edge_out, sendtypes, in, recvcounts, edge_in, recvtypes, graph
      IN_FORM(MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init)
#undef ARGUMENTS
      do i = 0, degree - 1
        call expect(sources(i), EDGE + i, 1 - i, recvcounts(i), i)
      end do
      call verdict('Neighbor_alltoallw')
    end do

    do turn = 1, turns()
      call prepare_one()
#define ARGUMENTS out, BLOCKS, wide_type, in, BLOCKS, narrow_type, graph
      IN_FORM(MPI_Neighbor_allgather, MPI_Ineighbor_allgather, MPI_Neighbor_allgather_init)
#undef ARGUMENTS
      do i = 0, degree - 1
        call expect(sources(i), EVERYONE, i, BLOCKS, 0)
      end do
      call verdict('Neighbor_allgather')
    end do

    recvcounts(0:1) = [(blocks_of(sources(i), 0), i = 0, 1)]
    do turn = 1, turns()
      call prepare_one()
#define ARGUMENTS out, blocks_of(rank, 0), wide_type, in, recvcounts, recvdispls, narrow_type, graph
      IN_FORM(MPI_Neighbor_allgatherv, MPI_Ineighbor_allgatherv, MPI_Neighbor_allgatherv_init)
#undef ARGUMENTS
      do i = 0, degree - 1
        call expect(sources(i), EVERYONE, 1 - i, recvcounts(i), 0)
      end do
      call verdict('Neighbor_allgatherv')
    end do
  end subroutine

  ! ---- MPI_IN_PLACE ------------------------------------------------------------

  subroutine in_place_all()
    integer :: turn
    do turn = 1, turns()
      call prepare_in_each()
#define ARGUMENTS MPI_IN_PLACE, 0, MPI_BYTE, in, BLOCKS, narrow_type, comm
      IN_FORM(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init)
#undef ARGUMENTS
      call expect_from_all(rank, spread(BLOCKS, 1, nranks))
      call verdict('Alltoall in place')
    end do

    do i = 0, nranks - 1
      recvcounts(i) = mod(rank + i, BLOCKS + 1)  ! the same in both directions
      recvdispls(i) = BLOCKS * i
    end do
    do turn = 1, turns()
      call prepare_in_each()
#define ARGUMENTS MPI_IN_PLACE, sendcounts, senddispls, MPI_BYTE, in, recvcounts, recvdispls, narrow_type, comm
      IN_FORM(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init)
#undef ARGUMENTS
      call expect_from_all(rank, recvcounts)
      call verdict('Alltoallv in place')
    end do

    do i = 0, nranks - 1
      recvdispls(i) = 8 * NARROW * BLOCKS * i
      recvtypes(i) = narrow_type
    end do
    if (with_types()) then
      do turn = 1, turns()
        call prepare_in_each()
#define ARGUMENTS MPI_IN_PLACE, sendcounts, senddispls, sendtypes, in, recvcounts, recvdispls, recvtypes, comm
        IN_FORM(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init)
#undef ARGUMENTS
        call expect_from_all(rank, recvcounts)
        call verdict('Alltoallw in place')
      end do
    end if

    do turn = 1, turns()
      call prepare_own()
#define ARGUMENTS MPI_IN_PLACE, 0, MPI_BYTE, in, BLOCKS, narrow_type, comm
      IN_FORM(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init)
#undef ARGUMENTS
      call expect_from_all(EVERYONE, spread(BLOCKS, 1, nranks))
      call verdict('Allgather in place')
    end do

    do i = 0, nranks - 1
      recvcounts(i) = blocks_of(i, 0)
      recvdispls(i) = BLOCKS * i
    end do
    do turn = 1, turns()
      call prepare_own()
#define ARGUMENTS MPI_IN_PLACE, 0, MPI_BYTE, in, recvcounts, recvdispls, narrow_type, comm
      IN_FORM(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init)
#undef ARGUMENTS
      call expect_from_all(EVERYONE, recvcounts)
      call verdict('Allgatherv in place')
    end do
  end subroutine

  subroutine in_place_at_a_root()
    integer :: turn
    do turn = 1, turns()
      call prepare_own()
      if (rank == root) then
#define ARGUMENTS MPI_IN_PLACE, 0, MPI_BYTE, in, BLOCKS, narrow_type, root, comm
        IN_FORM(MPI_Gather, MPI_Igather, MPI_Gather_init)
#undef ARGUMENTS
      else
#define ARGUMENTS out, BLOCKS, wide_type, in, BLOCKS, narrow_type, root, comm
        IN_FORM(MPI_Gather, MPI_Igather, MPI_Gather_init)
#undef ARGUMENTS
      end if
      if (rank == root) then
        call expect_from_all(EVERYONE, spread(BLOCKS, 1, nranks))
      end if
      call verdict('Gather in place')
    end do

    do i = 0, nranks - 1
      recvcounts(i) = blocks_of(i, root)
      recvdispls(i) = BLOCKS * i
      sendcounts(i) = blocks_of(root, i)
      senddispls(i) = BLOCKS * i
    end do
    do turn = 1, turns()
      call prepare_own()
      if (rank == root) then
#define ARGUMENTS MPI_IN_PLACE, 0, MPI_BYTE, in, recvcounts, recvdispls, narrow_type, root, comm
        IN_FORM(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init)
#undef ARGUMENTS
      else
#define ARGUMENTS out, recvcounts(rank), wide_type, in, recvcounts, recvdispls, narrow_type, root, comm
        IN_FORM(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init)
#undef ARGUMENTS
      end if
      if (rank == root) then
        call expect_from_all(EVERYONE, recvcounts)
      end if
      call verdict('Gatherv in place')
    end do

    do turn = 1, turns()
      call prepare_each()
      if (rank == root) then
#define ARGUMENTS out, BLOCKS, wide_type, MPI_IN_PLACE, 0, MPI_BYTE, root, comm
        IN_FORM(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init)
#undef ARGUMENTS
      else
#define ARGUMENTS out, BLOCKS, wide_type, in, BLOCKS, narrow_type, root, comm
        IN_FORM(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init)
#undef ARGUMENTS
      end if
      if (rank /= root) call expect(root, rank, 0, BLOCKS, 0)
      call verdict('Scatter in place')
    end do

    do turn = 1, turns()
      call prepare_each()
      if (rank == root) then
#define ARGUMENTS out, sendcounts, senddispls, wide_type, MPI_IN_PLACE, 0, MPI_BYTE, root, comm
        IN_FORM(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init)
#undef ARGUMENTS
      else
#define ARGUMENTS out, sendcounts, senddispls, wide_type, in, sendcounts(rank), narrow_type, root, comm
        IN_FORM(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init)
#undef ARGUMENTS
      end if
      if (rank /= root) call expect(root, rank, 0, sendcounts(rank), 0)
      call verdict('Scatterv in place')
    end do
  end subroutine

  ! ---- MPI_BOTTOM ------------------------------------------------------------

  subroutine from_bottom()
    integer :: turn
    sendcounts = 1
    recvcounts = 1
    senddispls = 0
    recvdispls = 0
    if (with_types()) then
      do turn = 1, turns()
        call prepare_each()
#define ARGUMENTS MPI_BOTTOM, sendcounts, senddispls, far_out, MPI_BOTTOM, recvcounts, recvdispls, far_in, comm
        IN_FORM(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init)
#undef ARGUMENTS
        call expect_from_all(rank, spread(BLOCKS, 1, nranks))
        call verdict('Alltoallw from MPI_BOTTOM')
      end do
    end if

    do turn = 1, turns()
      call prepare_one()
      if (rank == root) then
#define ARGUMENTS MPI_BOTTOM, 1, far_out(0), root, comm
        IN_FORM(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init)
#undef ARGUMENTS
      else
#define ARGUMENTS MPI_BOTTOM, 1, far_in(1), root, comm
        IN_FORM(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init)
#undef ARGUMENTS
      end if
      if (rank /= root) call expect(root, EVERYONE, 1, BLOCKS, 0)
      call verdict('Bcast from MPI_BOTTOM')
    end do

    do i = 0, nranks - 1
      recvcounts(i) = BLOCKS
      recvdispls(i) = BLOCKS * i
    end do
    do turn = 1, turns()
      call prepare_one()
#define ARGUMENTS MPI_BOTTOM, 1, far_out(0), in, recvcounts, recvdispls, narrow_type, root, comm
      IN_FORM(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init)
#undef ARGUMENTS
      if (rank == root) then
        call expect_from_all(EVERYONE, spread(BLOCKS, 1, nranks))
      end if
      call verdict('Gatherv from MPI_BOTTOM')
    end do

    do turn = 1, turns()
      call prepare_each()
#define ARGUMENTS out, BLOCKS, wide_type, MPI_BOTTOM, 1, far_in(1), root, comm
      IN_FORM(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init)
#undef ARGUMENTS
      call expect(root, rank, 1, BLOCKS, 0)
      call verdict('Scatter to MPI_BOTTOM')
    end do

    recvcounts = BLOCKS
    sendcounts = BLOCKS
    sendtypes = wide_type
    recvtypes = narrow_type
    do turn = 1, turns()
      call prepare_edges()
#define ARGUMENTS MPI_BOTTOM, sendcounts, at_out, sendtypes, MPI_BOTTOM, recvcounts, at_in, recvtypes, graph
      IN_FORM(MPI_Neighbor_alltoallw, MPI_Ineighbor_alltoallw, MPI_Neighbor_alltoallw_init)
#undef ARGUMENTS
      do i = 0, degree - 1
        call expect(sources(i), EDGE + i, i, BLOCKS, 0)
      end do
      call verdict('Neighbor_alltoallw from MPI_BOTTOM')
    end do
  end subroutine

#if WAY == 3
#include "collective_f08.fi"
#endif

end program
