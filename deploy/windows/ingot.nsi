; The installer for Windows, for one user, without administrator's rights: makensis -DVERSION=0.2.0 -DFOLDER=... -DOUT=...
; It puts the program into the user's folder of programs, and that folder into the user's PATH. /S installs silently.
Unicode true
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
  ; A longer PATH than NSIS can hold is read as an empty text or an error: then the PATH stays as it is.
  ClearErrors
  ReadRegStr $0 HKCU Environment Path
  ${IfNot} ${Errors}
    ${WordFind} "$0" ";" "E/$INSTDIR" $1  ; an error: the folder is not in it
    ${If} ${Errors}
      WriteRegExpandStr HKCU Environment Path "$0;$INSTDIR"
    ${EndIf}
  ${Else}
    EnumRegValue $1 HKCU Environment 0
    WriteRegExpandStr HKCU Environment Path "$INSTDIR"
  ${EndIf}
  SendMessage ${HWND_BROADCAST} ${WM_SETTINGCHANGE} 0 "STR:Environment" /TIMEOUT=500
SectionEnd

Section Uninstall
  ReadRegStr $0 HKCU Environment Path
  ${un.WordAdd} "$0" ";" "-$INSTDIR" $1
  ${If} $1 == ""
    DeleteRegValue HKCU Environment Path
  ${Else}
    WriteRegExpandStr HKCU Environment Path "$1"
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
