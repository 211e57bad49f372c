! A column of a Fortran array is a row of memory, so rows are the strided ones. WAY is 1: mpif.h,
! 2: use mpi, 3: use mpi_f08. Each rank sends a row to its right and gets one from its left, by blocking,
! nonblocking, persistent and combined calls.
program ring
#if WAY == 2
  use mpi
#elif WAY == 3
  use mpi_f08
#endif
  implicit none
#if WAY == 1
  include 'mpif.h'
#endif
#if WAY == 3
  type(MPI_Datatype) :: row, types(0:15)
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: status, statuses(2)
#else
  integer :: row, types(0:15), requests(2), status(MPI_STATUS_SIZE), statuses(MPI_STATUS_SIZE, 2)
#endif
  integer, parameter :: rows = 5, columns = 200
  double precision :: a(rows, columns), b(rows, columns)
  double precision :: packed(columns)
  integer :: rank, nranks, right, left, ierr, position, turn
  integer :: sends(0:15), receives(0:15), nowhere(0:15)
  logical :: flag

  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, nranks, ierr)
  right = mod(rank + 1, nranks)
  left = mod(rank + nranks - 1, nranks)
  call MPI_Type_vector(columns, 1, rows, MPI_DOUBLE_PRECISION, row, ierr)
  call MPI_Type_commit(row, ierr)

  call prepare(1)
  call MPI_Irecv(b(2, 1), 1, row, left, 1, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Isend(a(2, 1), 1, row, right, 1, MPI_COMM_WORLD, requests(2), ierr)
  call MPI_Waitall(2, requests, statuses, ierr)
  call verdict('Isend, Irecv, Waitall', 1)

  call prepare(2)
  call MPI_Irecv(b(2, 1), 1, row, left, 2, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Send(a(2, 1), 1, row, right, 2, MPI_COMM_WORLD, ierr)
  flag = .false.
  do while (.not. flag)
    call MPI_Test(requests(1), flag, status, ierr)
  end do
  call verdict('Send, Test', 2)

  call prepare(3)
  call MPI_Isend(a(2, 1), 1, row, right, 3, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Recv(b(2, 1), 1, row, left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE, ierr)
  call verdict('Recv, Wait', 3)

  call prepare(4)
  call MPI_Sendrecv(a(2, 1), 1, row, right, 4, b(2, 1), 1, row, left, 4, MPI_COMM_WORLD, status, ierr)
  call verdict('Sendrecv', 4)

  call MPI_Recv_init(b(2, 1), 1, row, left, 5, MPI_COMM_WORLD, requests(1), ierr)
  call MPI_Send_init(a(2, 1), 1, row, right, 5, MPI_COMM_WORLD, requests(2), ierr)
  do turn = 5, 7
    call prepare(turn)
    call MPI_Startall(2, requests, ierr)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierr)
    call verdict('Startall', turn)
  end do
  call MPI_Request_free(requests(1), ierr)
  call MPI_Request_free(requests(2), ierr)

  call prepare(8)
  position = 0
  call MPI_Pack(a(2, 1), 1, row, packed, 8 * columns, position, MPI_COMM_WORLD, ierr)
  call MPI_Sendrecv_replace(packed, 8 * columns, MPI_PACKED, right, 8, left, 8, MPI_COMM_WORLD, status, ierr)
  position = 0
  call MPI_Unpack(packed, 8 * columns, position, b(2, 1), 1, row, MPI_COMM_WORLD, ierr)
  call verdict('Pack, Unpack', 8)

  sends = 0
  receives = 0
  nowhere = 0
  types = row
  sends(right) = 1
  receives(left) = 1
  call prepare(9)
  call MPI_Alltoallw(a(2, 1), sends, nowhere, types, b(2, 1), receives, nowhere, types, MPI_COMM_WORLD, ierr)
  call verdict('Alltoallw', 9)

  b = a
  types = MPI_DOUBLE_PRECISION
  types(right) = row
  receives = 0
  receives(right) = 1
  if (nranks == 2) then
    call MPI_Alltoallw(MPI_IN_PLACE, sends, nowhere, types, b(2, 1), receives, nowhere, types, MPI_COMM_WORLD, ierr)
    where (b == -1) b = -2
  end if
  call verdict('Alltoallw in place', 9)

  call MPI_Type_free(row, ierr)
  call MPI_Finalize(ierr)

contains

  subroutine prepare(seed)
    integer, intent(in) :: seed
    integer :: j
    a = -1
    b = -2
    do j = 1, columns
      a(2, j) = 1000000d0 * rank + 1000d0 * seed + j
    end do
  end subroutine

  subroutine verdict(name, seed)
    character(len=*), intent(in) :: name
    integer, intent(in) :: seed
    double precision :: expected(rows, columns)
    logical :: good, everywhere
    integer :: j
    expected = -2
    do j = 1, columns
      expected(2, j) = 1000000d0 * left + 1000d0 * seed + j
    end do
    good = all(b == expected)
    call MPI_Allreduce(good, everywhere, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
    if (rank == 0 .and. everywhere) print '(a, a, i0)', 'ok ', name, seed
    if (rank == 0 .and. .not. everywhere) print '(a, a, i0)', 'BAD ', name, seed
  end subroutine

end program
