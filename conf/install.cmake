# What `cmake --install` puts where, and the Debian package.
include(GNUInstallDirs)
set(generated ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated})

# Out of the tables that the programs have.
foreach(what "transom.1:transom;__man" "transom.bash:transom;completion;bash" "_transom:transom;completion;zsh"
        "transom.fish:transom;completion;fish" "transom.yaml.5:transom-config-doc;--man"
        "transom.yaml:transom-config-doc;--yaml")
    string(REGEX MATCH "^[^:]*" file "${what}")
    string(REGEX REPLACE "^[^:]*:" "" command "${what}")
    list(POP_FRONT command program)
    add_custom_command(OUTPUT ${generated}/${file} COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0
        $<TARGET_FILE:${program}> ${command} > ${generated}/${file}
        DEPENDS ${program} VERBATIM)
    list(APPEND files ${generated}/${file})
endforeach()
add_custom_target(transom-generated ALL DEPENDS ${files})
foreach(page transom-vmm transom-gateway)
    configure_file(${CMAKE_SOURCE_DIR}/conf/man/${page}.8.in ${generated}/${page}.8 @ONLY)
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/conf/backup ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/transom-backup COPYONLY)

install(TARGETS transom transom-vmm transom-gateway transom-doctor transom-webhook)
install(PROGRAMS conf/backup DESTINATION ${CMAKE_INSTALL_BINDIR} RENAME transom-backup)
install(TARGETS transom-agent RUNTIME DESTINATION lib/transom)
install(DIRECTORY vmm/image/ DESTINATION lib/transom/image USE_SOURCE_PERMISSIONS PATTERN __pycache__ EXCLUDE)
install(CODE "file(CREATE_LINK ../lib/transom/image/build \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/bin/transom-image-build\" SYMBOLIC)")
install(FILES ${generated}/transom.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${generated}/transom.yaml.5 DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
install(FILES ${generated}/transom-vmm.8 ${generated}/transom-gateway.8 DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
install(FILES ${generated}/transom.bash DESTINATION share/bash-completion/completions RENAME transom)
install(FILES ${generated}/_transom DESTINATION share/zsh/vendor-completions)
install(FILES ${generated}/transom.fish DESTINATION share/fish/vendor_completions.d)
install(FILES README.md LICENSE conf/grafana-dashboard.json conf/sentinel.conf conf/certbot-deploy
    DESTINATION share/doc/transom)
install(FILES conf/systemd/transom-vmm.service conf/systemd/transom-gateway.service conf/systemd/transom-gateway.socket
    conf/systemd/transom-gateway-tls.socket DESTINATION lib/systemd/system)
install(FILES conf/systemd/sysusers.conf DESTINATION lib/sysusers.d RENAME transom.conf)
install(FILES conf/systemd/tmpfiles.conf DESTINATION lib/tmpfiles.d RENAME transom.conf)
install(FILES ${generated}/transom.yaml DESTINATION /etc/transom)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME transom)
set(CPACK_PACKAGE_CONTACT "Transom <root@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "disposable Linux microVMs with terminals in them and a preview URL in front")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "qemu-system-x86, qemu-utils, redis-server, e2fsprogs, nftables, iproute2, dnsmasq-base, zstd, tar, util-linux, systemd")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "mmdebstrap, erofs-utils, cpio, lz4, xz-utils, jq, python3, python3-yaml, npm, uidmap, openssh-client, libcurl4, ca-certificates")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "certbot")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/conf/debian/postinst ${CMAKE_SOURCE_DIR}/conf/debian/prerm
    ${CMAKE_SOURCE_DIR}/conf/debian/postrm ${generated}/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/packages)
file(WRITE ${generated}/conffiles "/etc/transom/transom.yaml\n")
include(CPack)
