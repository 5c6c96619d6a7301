# Writes a page of the manual for the program and for each of its commands, from what --help prints. The build calls it
# (target `man`) as
#   cmake -DPROGRAM=build/release/motley -DHELP2MAN=help2man -DOUT=build/release/man -P tools/cmake/man_pages.cmake
execute_process(COMMAND ${PROGRAM} help --json OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${PROGRAM} --version OUTPUT_VARIABLE version OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT})

# The page of one command and those of the commands inside it. `words` name the command: "motley;show;model".
function(write_pages json words)
  string(JSON description GET "${json}" description)
  list(JOIN words "-" page)
  string(REGEX REPLACE "^motley-?" "" path "${page}")
  string(REPLACE "-" " " path "${path}")
  # help2man gives each of its two options to the shell, after the program.
  execute_process(COMMAND ${HELP2MAN} --no-info --section=1 --name=${description} --version-string=${version}
                          --help-option=${path}\ --help --manual=Motley --source=motley\ ${version}
                          --output=${OUT}/${page}.1 ${PROGRAM} COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${OUT}/${page}.1 text)
  # The title is the name of the page, not that of the program alone.
  string(TOUPPER "${page}" title)
  string(REGEX REPLACE "\n\\.TH [^ ]+ " "\n.TH ${title} " text "${text}")
  string(REGEX REPLACE "(\n\\.SH NAME\n)[^ \n]+ " "\\1${page} " text "${text}")
  # Each example keeps its line.
  string(REPLACE "\n.SS \"Example:\"\n.IP\n" "\n.SH EXAMPLES\n.nf\n" text "${text}")
  string(REPLACE "\n.PP\nExit codes: " "\n.fi\n.SH \"EXIT STATUS\"\n" text "${text}")
  file(WRITE ${OUT}/${page}.1 "${text}")
  string(JSON count LENGTH "${json}" commands)
  if(count GREATER 0)
    math(EXPR last "${count} - 1")
    foreach(i RANGE ${last})
      string(JSON inner GET "${json}" commands ${i})
      string(JSON name GET "${inner}" name)
      write_pages("${inner}" "${words};${name}")
    endforeach()
  endif()
endfunction()

string(JSON program GET "${help}" command)
write_pages("${program}" motley)
