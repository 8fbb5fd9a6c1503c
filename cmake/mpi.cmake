# src/cli/mpi/: with MPI the program may be started by mpirun, a rank of the model in each process. Without MPI, or with
# -DINGOT_MPI=OFF, no_mpi.cc takes its place. Only the program links MPI, not libingot.
set(INGOT_MPI "AUTO" CACHE STRING "Ranks as processes of MPI: AUTO (when MPI is found), ON or OFF")
set_property(CACHE INGOT_MPI PROPERTY STRINGS AUTO ON OFF)
set(INGOT_HAS_MPI OFF)
if(NOT INGOT_MPI STREQUAL "OFF")
  set(MPI_CXX_SKIP_MPICXX ON)  # the old C++ interface, which is not used here and warns
  if(INGOT_MPI STREQUAL "ON")
    find_package(MPI REQUIRED COMPONENTS CXX)
  else()
    find_package(MPI QUIET COMPONENTS CXX)
  endif()
  set(INGOT_HAS_MPI ${MPI_CXX_FOUND})
endif()
message(STATUS "MPI: ${INGOT_HAS_MPI}")

function(ingot_mpi target)
  if(INGOT_HAS_MPI)
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/cli/mpi/mpi_processes.cc)
    target_link_libraries(${target} PRIVATE MPI::MPI_CXX)
  else()
    target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src/cli/mpi/no_mpi.cc)
  endif()
endfunction()
