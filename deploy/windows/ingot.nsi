; The installer for Windows, for one user, without administrator's rights: makensis -DVERSION=0.2.0 -DFOLDER=... -DOUT=...
; It puts the program into the user's folder of programs, and that folder into the user's PATH. /S installs silently.
Unicode true
Target amd64-unicode
Name "ingot ${VERSION}"
OutFile "${OUT}"
RequestExecutionLevel user
InstallDir "$LOCALAPPDATA\Programs\ingot"
SetCompressor /SOLID lzma
VIProductVersion "${VERSION}.0"
VIAddVersionKey ProductName ingot
VIAddVersionKey ProductVersion "${VERSION}"
VIAddVersionKey FileVersion "${VERSION}"
VIAddVersionKey FileDescription "ingot: runs open language models"
VIAddVersionKey LegalCopyright "The ingot authors, Apache License 2.0"
!include LogicLib.nsh
!include WinMessages.nsh
!include WordFunc.nsh
!define UNINSTALL "Software\Microsoft\Windows\CurrentVersion\Uninstall\ingot"
LicenseData "${FOLDER}\LICENSE.txt"
Page license
Page directory
Page instfiles
UninstPage uninstConfirm
UninstPage instfiles

Section
  SetOutPath "$INSTDIR"
  File /r "${FOLDER}\*.*"
  WriteUninstaller "$INSTDIR\uninstall.exe"
  WriteRegStr HKCU "${UNINSTALL}" DisplayName ingot
  WriteRegStr HKCU "${UNINSTALL}" DisplayVersion "${VERSION}"
  WriteRegStr HKCU "${UNINSTALL}" Publisher "The ingot authors"
  WriteRegStr HKCU "${UNINSTALL}" InstallLocation "$INSTDIR"
  WriteRegStr HKCU "${UNINSTALL}" UninstallString '"$INSTDIR\uninstall.exe"'
  WriteRegStr HKCU "${UNINSTALL}" QuietUninstallString '"$INSTDIR\uninstall.exe" /S'
  WriteRegDWORD HKCU "${UNINSTALL}" NoModify 1
  WriteRegDWORD HKCU "${UNINSTALL}" NoRepair 1
  ; A PATH that is longer than a text of NSIS would be cut: then it stays as it is.
  ClearErrors
  ReadRegStr $0 HKCU Environment Path
  ${If} ${Errors}  ; there is none, or it is too long to be read
    StrCpy $2 0
    ${Do}
      EnumRegValue $1 HKCU Environment $2
      IntOp $2 $2 + 1
      ${If} $1 == Path  ; in any case of letters
        ${ExitDo}
      ${EndIf}
    ${LoopUntil} $1 == ""
    ${If} $1 == ""
      WriteRegExpandStr HKCU Environment Path "$INSTDIR"
    ${EndIf}
  ${Else}
    StrLen $1 "$0;$INSTDIR"
    IntOp $1 $1 + 1
    ${WordFind} ";$0;" ";$INSTDIR;" "E+1{" $2  ; an error: the folder is not in it
    ${If} ${Errors}
    ${AndIf} $1 < ${NSIS_MAX_STRLEN}
      WriteRegExpandStr HKCU Environment Path "$0;$INSTDIR"
    ${EndIf}
  ${EndIf}
  SendMessage ${HWND_BROADCAST} ${WM_SETTINGCHANGE} 0 "STR:Environment" /TIMEOUT=500
SectionEnd

Section Uninstall
  ClearErrors
  ReadRegStr $0 HKCU Environment Path
  ${IfNot} ${Errors}
    ${un.WordAdd} "$0" ";" "-$INSTDIR" $1
    ${If} $1 == ""
      DeleteRegValue HKCU Environment Path
    ${Else}
      WriteRegExpandStr HKCU Environment Path "$1"
    ${EndIf}
  ${EndIf}
  SendMessage ${HWND_BROADCAST} ${WM_SETTINGCHANGE} 0 "STR:Environment" /TIMEOUT=500
  DeleteRegKey HKCU "${UNINSTALL}"
  Delete "$INSTDIR\ingot.exe"
  Delete "$INSTDIR\LICENSE.txt"
  Delete "$INSTDIR\NOTICE.txt"
  Delete "$INSTDIR\licenses\*.txt"
  RMDir "$INSTDIR\licenses"
  Delete "$INSTDIR\uninstall.exe"
  RMDir "$INSTDIR"
SectionEnd
