# What templates may use without asking for it. Newer Rubies have some of them as gems only.
%w[json yaml erb ostruct openssl digest/sha1 digest/sha2 digest/md5 securerandom time date zlib stringio tmpdir pathname fileutils
   logger forwardable shellwords base64 net/http uri ipaddr set io/wait].each do |library|
  require library
rescue LoadError
  nil
end
